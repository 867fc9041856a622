"""Work of the low tier leaves the batch for any other request, and never starves."""

from pathlib import Path

import pytest

from tests.engine.in_process import a_loop
from vinery_serving.engine import admission
from vinery_serving.engine.pipeline import Pipeline

pytestmark = pytest.mark.live

KEY = (1, 1)


@pytest.mark.smoke
def test_it_waits_for_all_others_also_of_its_key_and_loses_no_token(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    with a_loop(pipeline, tmp_path) as loop:
        low = [
            loop.submit(f"Count to {number}.", max_new_tokens=70, lane=KEY, is_low_tier=True)
            for number in (30, 40, 50)
        ]
        loop.until(lambda: min(map(loop.num_generated, low)) >= 5)
        before = [loop.num_generated(each) for each in low]

        other = loop.submit("hi", lane=KEY, max_new_tokens=40)
        loop.until(lambda: loop.num_generated(other) >= 1)
        beside = [loop.num_generated(each) for each in low]
        loop.finish(other)

        assert max(now - then for now, then in zip(beside, before, strict=True)) <= 2
        assert [loop.num_generated(each) for each in low] == beside
        assert {len(each.tokens) for each in loop.finish(*low)} == {70}


def test_it_makes_room_before_a_request_comes_and_for_a_while_if_none_comes(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_loop(pipeline, tmp_path) as loop:
        low = loop.submit("Count.", max_new_tokens=300, lane=KEY, is_low_tier=True)
        loop.until(lambda: loop.num_generated(low) >= 5)
        loop.until(lambda: any(load.has_low_tier for load in loop.loads))
        loop.announce()  # the request is refused, or its client leaves
        loop.turn()
        then = loop.num_generated(low)
        loop.until(lambda: loop.num_generated(low) > then)

        monkeypatch.setattr(admission, "_LOW_HOLD_S", 600.0)
        loop.announce()
        loop.turn()
        then = loop.num_generated(low)
        for _ in range(5):
            loop.turn()
        assert loop.num_generated(low) == then
        assert loop.kind.wait_s > 500, "it does not spin"
        loop.finish(loop.submit("hi", lane=(2, 2), max_new_tokens=3))
        loop.finish(low)


def test_it_has_a_share_of_the_time_beside_others(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "_LOW_WINDOW_S", 0.05)
    with a_loop(pipeline, tmp_path) as loop:
        low = loop.submit("Count.", max_new_tokens=20, lane=KEY, is_low_tier=True)

        while not loop.num_generated(low):  # others all the time
            loop.finish(loop.submit("hi", lane=(2, 2), max_new_tokens=10))
