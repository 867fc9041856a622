"""How much of a lane's next prompt must be computed, as far as its last ones show."""

import pytest

from vinery_serving.engine.cached_parts import CachedParts

ALICE, BOB = (1, 1), (2, 2)


def test_each_lane_has_an_estimate_of_its_own_and_any_number_takes_bounded_memory() -> None:
    parts = CachedParts()
    for _ in range(100):
        parts.note(ALICE, num_cached=29, num_tokens=30)

    assert parts.uncached(ALICE) == 1 / 8
    assert parts.uncached(BOB) == 1.0
    parts.note(ALICE, num_cached=0, num_tokens=30)
    assert parts.uncached(ALICE) == pytest.approx(0.2, abs=0.05)

    parts = CachedParts()
    for number in range(3000):
        parts.note((number, number), num_cached=1, num_tokens=2)
    assert len(parts._uncached) == 1024
    assert parts.uncached((2999, 2999)) == pytest.approx(0.9)
