"""The benchmark waits until other programs leave the machine alone."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.calm import wait_until_calm


def looks(*busy: float) -> tuple[Callable[[float], float], Callable[[], float]]:
    """What the machine is found to be, and a clock that each look advances."""
    found, now_s = list(busy), [0.0]

    def look(seconds: float) -> float:
        now_s[0] += seconds
        return found.pop(0) if len(found) > 1 else found[0]

    return look, lambda: now_s[0]


def test_a_calm_machine_is_looked_at_once() -> None:
    look, clock = looks(0.02)

    calm = wait_until_calm("server", busy_for=look, clock=clock)

    assert (calm.is_calm, calm.waited_s) == (True, 2.0)


def test_a_busy_machine_is_waited_for() -> None:
    look, clock = looks(0.9, 0.5, 0.05)

    calm = wait_until_calm("server", busy_for=look, clock=clock)

    assert (calm.is_calm, calm.waited_s, calm.busy) == (True, 6.0, 0.05)


def test_a_machine_that_stays_busy_is_measured_and_named() -> None:
    look, clock = looks(0.9)

    calm = wait_until_calm("server", max_wait_s=20.0, busy_for=look, clock=clock)

    assert (calm.is_calm, calm.waited_s, calm.busy) == (False, 20.0, 0.9)
