"""What a hypervisor took from the processors, by the kernel's count of their time."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.clock import FakeClock
from tests.tables import table
from vinery.process.stolen_time import Accounted, StolenTime, stolen_s

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
def test_what_one_processor_has_lost_since_the_mark_is_stolen(
    tmp_path: Path, column: int | None, lost_s: float
) -> None:
    """The kernel reports it or not. A processor that comes or goes is no loss."""
    machine = Machine(tmp_path)
    machine.pass_s(2.0, (None, None))
    machine.stolen.mark()
    machine.pass_s(1.0, (BUSY, IDLE))
    machine.pass_s(0.25, (BUSY, column))

    assert machine.stolen.since_mark_s() == pytest.approx(lost_s)
    assert stolen_s(Accounted(0.0, (1.0,)), Accounted(9.0, (1.0, 0.0))) == 0


@table("content", [None, "", "cpu 0 0 0 0\ncpu0 0 0 0 0\n", "no numbers\ncpu0 a"])
def test_without_the_kernels_count_nothing_is_stolen(tmp_path: Path, content: str | None) -> None:
    file, clock = tmp_path / "stat", FakeClock()
    if content is not None:
        file.write_text(content)
    stolen = StolenTime(file, clock)
    stolen.mark()
    clock.pass_s(5.0)

    assert stolen.since_mark_s() == 0


@given(*[st.lists(st.floats(0, 100), min_size=2, max_size=2)] * 2, st.floats(0, 100))
def test_no_more_than_the_time_is_stolen(
    before: list[float], grown: list[float], passed_s: float
) -> None:
    after = [early + late for early, late in zip(before, grown, strict=True)]
    taken_s = stolen_s(Accounted(0.0, tuple(before)), Accounted(passed_s, tuple(after)))

    assert 0 <= taken_s <= passed_s
