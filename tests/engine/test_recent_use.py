"""What part of the engine lanes have used of late, by a clock that the test moves."""

from __future__ import annotations

from collections import Counter

import pytest

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


def test_lanes_share_what_the_engine_can_do() -> None:
    use = RecentUse()
    now = run(use, 0.0, 90.0)

    parts = use.parts(now, 0.0)

    assert [lane for lane, _ in parts] == [ALICE, BOB], "the most first"
    assert dict(parts) == pytest.approx({ALICE: 0.9, BOB: 0.1}, rel=0.1)
    assert dict(use.parts(now, 4000.0)) == pytest.approx({ALICE: 0.225, BOB: 0.025}, rel=0.1)
    assert not use.parts(now + 3600, 0.0)


def test_a_few_bursts_of_seconds_use_little_although_the_engine_was_never_seen_to_do_more() -> None:
    use, now = RecentUse(), 0.0
    for _ in range(4):
        now = run(use, now, 2.0) + 1.0

    assert sum(part for _, part in use.parts(now, 0.0)) < 0.5


def test_a_load_of_many_seconds_uses_most_of_the_engine() -> None:
    use = RecentUse()
    now = run(use, 0.0, 15.0)

    assert sum(part for _, part in use.parts(now, 0.0)) > 0.5


def test_an_engine_that_never_had_much_to_do_is_not_used() -> None:
    use = RecentUse()
    now = run(use, 0.0, 60.0, is_busy=False)

    assert use.peak(now) == 0
    assert not use.parts(now, 0.0)
    assert not use.parts(now, 5000.0)


def test_any_number_of_lanes_is_counted_in_bounded_memory() -> None:
    use = RecentUse()
    for number in range(3000):
        use.note_admitted((number, 7), 1e6, 0.0)
        use.note_running(Counter({(number, 7): 4}), number / 100, is_busy=True)

    assert len(use._lanes) <= 1024
    assert len(use.parts(30.0, 1000.0)) <= 256
