"""The watch on the event loop: blame of the loop and of a hypervisor, and log lines."""

import asyncio
import logging
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.conftest import until
from tests.fakes.clock import FakeClock
from tests.tables import table
from vinery_platform.processes import loop_watch
from vinery_platform.processes.loop_watch import LoopWatch, StolenTime, Times, blocked_s

TICK_S = 0.05


def after(
    passed_s: float, *, cpu_s: float = 0.0, waited_s: float = 0.0, num_looks: int | None = None
) -> float:
    """The block that the loop is blamed for when the next tick comes so late."""
    looks = round(passed_s / TICK_S) if num_looks is None else num_looks
    return blocked_s(Times(0, 0, 0, 0, 0), Times(passed_s, cpu_s, cpu_s, waited_s, looks))


@pytest.mark.parametrize(
    ("passed_s", "more", "block_s"),
    [
        (TICK_S, {}, 0),
        (TICK_S + 0.3, {}, 0.3),  # a call waits
        # A library computes with the interpreter's lock.
        (TICK_S + 0.3, {"cpu_s": 0.3, "num_looks": 0}, 0.3),
        (3600.0, {"cpu_s": 0.01, "num_looks": 0}, 0.01),  # the process was suspended
        (TICK_S + 0.3, {"waited_s": 0.3}, 0),  # it had no processor
    ],
)
def test_a_loop_is_blamed_for_acts(passed_s: float, more: dict[str, Any], block_s: float) -> None:
    assert after(passed_s, **more) == pytest.approx(block_s)


def test_many_blocks_are_one_line_with_the_longest(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock(0.0)
    watch = LoopWatch(clock)
    watch.tick(Times(clock(), 0, 0, 0, 0))
    for block_s in (0.2, 0.3, 0.9, 0.3, *[0.0] * 100):
        clock.pass_s(TICK_S + block_s)
        watch.tick(Times(clock(), clock(), clock() / 2, 0, 0))

    assert caplog.messages == [
        "the event loop stood still for 200 ms and computed for 125 ms of it at an unknown line",
        "the event loop stood still for 900 ms and computed for 475 ms of it at an unknown line; "
        "2 more since",
    ]
    assert sum(watch.blocks.nums) == 4


@pytest.mark.parametrize(
    ("block_s", "stolen_s", "expected"),
    [
        (0.26, 0.26, []),
        (0.26, 0.0, ["the event loop stood still for 260 ms and computed for 260 ms of it"]),
        (0.4, 0.1, ["the event loop stood still for 300 ms and computed for 300 ms of it"]),
    ],
)
def test_a_block_is_blamed_for_what_the_hypervisor_left(
    caplog: pytest.LogCaptureFixture, block_s: float, stolen_s: float, expected: list[str]
) -> None:
    clock = FakeClock(0.0)
    watch = LoopWatch(clock, Mock(StolenTime, since_mark_s=lambda: stolen_s))
    watch.tick(Times(clock(), 0, 0, 0, 0))
    clock.pass_s(TICK_S + block_s)
    watch.tick(Times(clock(), clock(), clock(), 0, 0))

    assert [message.partition(" at ")[0] for message in caplog.messages] == expected
    assert sum(watch.blocks.nums) == len(expected)


async def test_a_block_is_counted_and_logged_with_its_stack(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine may hold the loop up before the call does: that block is logged too.
    monkeypatch.setattr("vinery_platform.processes.loop_watch._LOG_INTERVAL_S", 0.0)
    caplog.set_level(logging.WARNING)
    watch = LoopWatch()
    watch.begin()

    a_call_that_blocks(watch)

    # No thread is started here: to wait for its start would be part of the same block.
    for _ in range(1200):
        if "a_call_that_blocks" in caplog.text:
            break
        await asyncio.sleep(0.05)
    assert watch.blocks.sum_ms > 0
    assert re.search(
        r"stood still for \d+ ms and .* at .*test_loop_watch\.py:\d+ a_call", caplog.text
    )


def a_call_that_blocks(watch: LoopWatch) -> None:
    until(lambda: "a_call_that_blocks" in watch._stack)
    time.sleep(0.5)


async def test_a_loop_without_requests_is_not_woken_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_watch, "_INTERVAL_S", 0.001)
    ticks: list[Times] = []
    watch = LoopWatch()
    monkeypatch.setattr(watch, "tick", ticks.append)
    watch.begin()
    await asyncio.to_thread(until, lambda: not watch._is_ticking.is_set())

    watch.enter()
    longer = len(ticks) + 2 * loop_watch._TICKS_AFTER_REQUESTS
    await asyncio.to_thread(until, lambda: len(ticks) > longer)
    assert watch._is_ticking.is_set()

    watch.leave()
    await asyncio.to_thread(until, lambda: not watch._is_ticking.is_set())


# Columns of /proc/stat, which are user, nice, system, idle, iowait, irq, softirq, steal, ...
BUSY, IDLE, STEAL = 0, 3, 7


class Machine:
    """A /proc/stat of some processors, whose columns a test fills."""

    def __init__(self, folder: Path, num_processors: int = 2) -> None:
        self._file = folder / "stat"
        self._ticks = [[100] * 10 for _ in range(num_processors)]
        self._clock = FakeClock(50.0)
        self._write()
        self.stolen = StolenTime(self._file, self._clock)
        self.stolen.mark()

    def add_processor(self) -> None:
        self._ticks.append([100] * 10)
        self._write()

    def pass_s(self, seconds: float, columns: Sequence[int | None]) -> None:
        """Time passes that each processor adds to one column, or to none."""
        self._clock.pass_s(seconds)
        for ticks, column in zip(self._ticks, columns, strict=True):
            if column is not None:
                ticks[column] += round(seconds * 100)
        self._write()

    def _write(self) -> None:
        total = map(sum, zip(*self._ticks, strict=True))
        rows = ["cpu  " + " ".join(map(str, total))]
        rows += [f"cpu{n} {' '.join(map(str, each))}" for n, each in enumerate(self._ticks)]
        self._file.write_text("\n".join([*rows, "intr 1 2 3", "ctxt 7\n"]))


@pytest.mark.parametrize(("column", "lost_s"), [(STEAL, 0.25), (None, 0.25), (BUSY, 0.0)])
def test_what_a_processor_lost_is_stolen(tmp_path: Path, column: int | None, lost_s: float) -> None:
    """The kernel reports it or not. A processor that comes or goes is no loss."""
    machine = Machine(tmp_path)
    machine.pass_s(2.0, (None, None))
    machine.stolen.mark()
    machine.pass_s(1.0, (BUSY, IDLE))
    machine.pass_s(0.25, (BUSY, column))

    assert machine.stolen.since_mark_s() == pytest.approx(lost_s)
    machine.add_processor()
    assert machine.stolen.since_mark_s() == 0


@table("content", [None, "", "cpu 0 0 0 0\ncpu0 0 0 0 0\n", "no numbers\ncpu0 a"])
def test_without_the_kernels_count_nothing_is_stolen(tmp_path: Path, content: str | None) -> None:
    file, clock = tmp_path / "stat", FakeClock()
    if content is not None:
        file.write_text(content)
    stolen = StolenTime(file, clock)
    stolen.mark()
    clock.pass_s(5.0)

    assert stolen.since_mark_s() == 0
