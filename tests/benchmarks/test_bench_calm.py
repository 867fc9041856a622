"""The benchmark waits until other programs leave the machine alone."""

from collections.abc import Callable

from benchmarks.calm import wait_until_calm
from tests.tables import table


def looks(*busy: float) -> tuple[Callable[[float], float], Callable[[], float]]:
    """What the machine is found to be, and a clock that each look advances."""
    found, now_s = list(busy), [0.0]

    def look(seconds: float) -> float:
        now_s[0] += seconds
        return found.pop(0) if len(found) > 1 else found[0]

    return look, lambda: now_s[0]


@table(
    "busy, found",
    [
        ((0.02,), (True, 2.0, 0.02)),
        ((0.9, 0.5, 0.05), (True, 6.0, 0.05)),
        ((0.9,), (False, 20.0, 0.9)),
    ],
)
def test_it_waits_for_a_calm_machine_and_names_a_busy_one(
    busy: tuple[float, ...], found: tuple[bool, float, float]
) -> None:
    look, clock = looks(*busy)

    calm = wait_until_calm("server", max_wait_s=20.0, busy_for=look, clock=clock)

    assert (calm.is_calm, calm.waited_s, calm.busy) == found
