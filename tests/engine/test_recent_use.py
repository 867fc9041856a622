"""What part of the engine lanes have used of late, by a clock that the test moves."""

from collections import Counter

import pytest

from tests.tables import table
from vinery_serving.engine.recent_use import RecentUse

ALICE, BOB = (1, 1), (2, 2)


def run(use: RecentUse, start: float, duration_s: float, *, is_busy: bool = True) -> float:
    """Serve 1,000 tokens a second, of which Bob has a tenth. Returns the end."""
    for number in range(round(duration_s * 100)):
        now = start + number / 100
        lane = BOB if number % 10 == 0 else ALICE
        use.note_admitted(lane, 10.0, now)
        use.note_served(10.0, now, is_busy=is_busy)
        use.note_running(Counter({ALICE: 9, BOB: 1}), now, is_busy=is_busy)
    return start + duration_s


def test_lanes_share_what_the_engine_can_do_and_any_number_takes_bounded_memory() -> None:
    use = RecentUse()
    now = run(use, 0.0, 90.0)

    parts = use.parts(now, 0.0)

    assert [lane for lane, _ in parts] == [ALICE, BOB], "the most first"
    assert dict(parts) == pytest.approx({ALICE: 0.9, BOB: 0.1}, rel=0.1)
    assert dict(use.parts(now, 4000.0)) == pytest.approx({ALICE: 0.225, BOB: 0.025}, rel=0.1)
    assert not use.parts(now + 3600, 0.0)

    use = RecentUse()
    for number in range(3000):
        use.note_admitted((number, 7), 1e6, 0.0)
        use.note_running(Counter({(number, 7): 4}), number / 100, is_busy=True)
    assert len(use._lanes) <= 1024
    assert len(use.parts(30.0, 1000.0)) <= 256


@table(
    "durations_s, is_busy, least, most",
    [
        ([2.0] * 4, True, 0.0, 0.5),  # a few bursts, although it was never seen to do more
        ([15.0], True, 0.5, 1.0),
        ([60.0], False, 0.0, 0.0),  # it never had much to do
    ],
)
def test_a_used_part_follows_from_how_long_there_was_much_to_do(durations_s, is_busy, least, most):
    use, now = RecentUse(), 0.0
    for duration_s in durations_s:
        now = run(use, now, duration_s, is_busy=is_busy) + 1.0
    used = sum(part for _, part in use.parts(now - 1.0, 0.0))
    assert least <= used <= most
    if not is_busy:
        assert use.peak(now) == 0
        assert not [*use.parts(now - 1.0, 0.0), *use.parts(now, 5000.0)]
