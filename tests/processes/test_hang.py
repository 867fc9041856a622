"""When a watched process stands still, with a fake clock and a fake process."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.clock import FakeClock
from tests.tables import table
from vinery_serving.processes.heartbeat import (
    CONFIRM_S,
    INTERVAL_S,
    Hang,
    HangWatch,
    LinuxProcess,
    Page,
    in_one_line,
)
from vinery_serving.processes.upkeep import until_next

LIMIT_S = 3.0
SILENT = "without a sign of life"
UNTIL_S, MORE_S = LIMIT_S + CONFIRM_S - INTERVAL_S, CONFIRM_S + INTERVAL_S


class FakeProcess(LinuxProcess):
    """A process in a state that the test sets, as is the wait of threads for a processor."""

    def __init__(self) -> None:
        self.state = "S"
        self.waited: dict[str, float] = {"1": 0.0, "2": 0.0}

    def letter(self) -> str:
        return self.state

    def waited_s(self) -> dict[str, float]:
        return dict(self.waited)


class Watched:
    """A process that beats when the test wants, and the watch."""

    def __init__(self) -> None:
        self.clock = FakeClock(1000.0)
        self.page = Page.new(60.0, self.clock)
        self.process = FakeProcess()
        self.watch = HangWatch(self.page, self.process, self.clock)

    def look_for(self, seconds: float, *, starved: float = 0.0) -> Hang | None:
        """Look at the usual interval for so long; a thread waits for a part of the time."""
        for _ in range(round(seconds / INTERVAL_S)):
            self.clock.pass_s(INTERVAL_S)
            self.process.waited["1"] += starved * INTERVAL_S
            if hang := self.watch.look():
                return hang
        return None

    def reason_within(self, seconds: float, *, starved: float = 0.0) -> str:
        """Why the process stands still by then; empty if it does not."""
        hang = self.look_for(seconds, starved=starved)
        return "" if hang is None else hang.reason


@pytest.fixture
def watched() -> Iterator[Watched]:
    watched = Watched()
    watched.page.beat(LIMIT_S)
    yield watched
    watched.page.close()


def test_a_process_that_beats_or_continues_in_time_is_left_alone(watched: Watched) -> None:
    for _ in range(100):
        watched.page.beat(LIMIT_S)
        assert watched.look_for(LIMIT_S) is None
    for _ in range(20):
        watched.page.beat(LIMIT_S)
        assert watched.look_for(UNTIL_S) is None
    for _ in range(10):
        watched.page.beat(LIMIT_S)
        watched.process.state = "T"
        assert watched.look_for(2.5) is None
        watched.process.state = "S"
        assert watched.look_for(INTERVAL_S) is None


def test_a_late_sign_of_life_is_one(watched: Watched) -> None:
    """Between two looks a starved process beats, and the new promise is broken, too."""
    watched.look_for(UNTIL_S)
    for _ in range(10):
        watched.page.beat(-INTERVAL_S / 2)
        assert watched.look_for(CONFIRM_S - INTERVAL_S) is None


def test_the_system_is_not_asked_about_a_process_that_beats(watched: Watched) -> None:
    watched.process.letter = None  # type: ignore[assignment,method-assign]
    for _ in range(10):
        watched.clock.pass_s(INTERVAL_S)
        watched.page.beat(LIMIT_S)

        assert watched.watch.look() is None


@table(
    "promised_s, state, starved, calm_s, then_s, reason",
    [
        # A silent process stands still a second after its promise.
        (LIMIT_S, "S", 0.0, UNTIL_S, 2 * INTERVAL_S, SILENT),
        # A process may promise more time, and has its own time to start.
        (100.0, "S", 0.0, 99.0, 3.0, SILENT),
        (None, "S", 0.0, 59.0, 3.0, SILENT),
        # A stopped one stands still whatever it promised.
        (100.0, "T", 0.0, 2.5, 1.0, "stopped by a signal"),
        # A loop on a busy machine is noticed later.
        (LIMIT_S, "S", 0.5, LIMIT_S + CONFIRM_S, MORE_S, SILENT),
    ],
)
def test_a_process_stands_still_only_after_its_time(
    promised_s: float | None, state: str, starved: float, calm_s: float, then_s: float, reason: str
) -> None:
    watched = Watched()
    watched.process.state = state
    if promised_s is not None:
        watched.page.beat(promised_s)

    assert watched.look_for(calm_s, starved=starved) is None
    assert watched.reason_within(then_s, starved=starved) == reason


@table("state", ["t", "D"])
def test_a_process_in_a_debugger_or_waiting_for_a_disk_is_left_alone(
    watched: Watched, state: str
) -> None:
    watched.process.state = state

    assert watched.look_for(1000.0) is None


def test_a_pause_of_the_whole_machine_harms_no_process(watched: Watched) -> None:
    for _ in range(10):
        watched.clock.pass_s(3600.0)
        assert watched.watch.look() is None


def test_a_process_that_gets_no_processor_is_not_blamed(watched: Watched) -> None:
    assert watched.look_for(1000.0, starved=1.0) is None


def test_linux_knows_the_state_of_this_process_and_none_of_an_ended_one() -> None:
    process = LinuxProcess(os.getpid())

    assert process.letter() == "R"
    assert str(os.getpid()) in process.waited_s()

    process = LinuxProcess(1 << 30)

    assert process.letter() == ""
    assert process.waited_s() == {}


def test_stacks_are_one_line_with_the_main_thread_first() -> None:
    dump = """Thread 0x00007f0000000001 (most recent call first):
  File "/usr/lib/python3.11/concurrent/futures/thread.py", line 81 in _worker
  File "/usr/lib/python3.11/threading.py", line 975 in run

Thread 0x00007f0000000002 (most recent call first):
  File "/srv/app/serving/other.py", line 5 in busy

Current thread 0x00007f0000000003 (most recent call first):
  File "/srv/app/serving/flow/rendering.py", line 12 in render
  File "/srv/app/web.py", line 3 in main
"""

    assert in_one_line(dump) == (
        "serving/flow/rendering.py:12 render < srv/app/web.py:3 main; app/serving/other.py:5 busy"
    )


# -- Periodic work of one process is done at the same moments


@given(st.floats(0, 1e7), st.sampled_from([0.25, 0.5, 1.0, 2.0]))
def test_work_is_done_at_multiples_of_its_interval(now_s: float, interval_s: float) -> None:
    sleep_s = until_next(interval_s, lambda: now_s)

    at = (now_s + sleep_s) / interval_s
    assert at == pytest.approx(round(at), abs=1e-6)
    assert 0.2 * interval_s <= sleep_s <= 1.2 * interval_s


def test_work_without_an_interval_does_not_wait() -> None:
    assert until_next(0.0) == 0.0
