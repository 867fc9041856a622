"""The width of proposals follows scripted times of steps, and the engine can propose nothing."""

from pathlib import Path
from typing import Any

import pytest

from tests.engine.conftest import TINY_CHAT
from tests.engine.in_process import Loop, a_loop, pipeline_of
from tests.engine.test_speculation import SEEDED, WAYS
from tests.tables import table
from vinery_serving.core.request import SpeculativeDecoding
from vinery_serving.engine.speculation import NONE, NUM_TRIED, RETRY_S, WIDTHS, Speculation, limited

Times = dict[int, float]  # seconds of a token by width, as indexes of `WIDTHS`


class Served:
    """A rule whose engine takes scripted times."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.rule = Speculation(lambda: self.now_s)

    @property
    def width(self) -> int:
        width = self.rule.width_for(None)
        assert width is not None
        return width

    def serve(self, times: Times, num_streams: int = 1, num_steps: int = NUM_TRIED) -> int:
        """Do steps, each with two tokens a stream. Returns the width of the next request."""
        for _ in range(num_steps):
            took_s = 2 * times[self.width]
            self.rule.note(self.width, num_streams, 2 * num_streams, took_s)
        return self.width

    def serve_all(self, times: Times, num_streams: int = 1) -> int:
        """Let the rule try each width, and switch when it asks."""
        for _ in WIDTHS:
            self.serve(times, num_streams)
            self.switch()
        return self.width

    def switch(self) -> None:
        if self.rule.must_switch:
            self.rule.is_on = not self.rule.is_on


@table(
    "times, width, loss",
    [
        ({0: 1.0, 1: 1.1, 2: 1.2, 3: 1.3}, 0, None),
        ({0: 1.0, 1: 0.8, 2: 0.9, 3: 1.0}, 1, None),
        ({0: 1.5, 1: 1.3, 2: 1.12, 3: 1.0}, 3, 0.12),
        ({0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0}, 3, 0.0),
    ],
)
def test_the_quickest_width_stays_and_the_loss_is_known(
    times: Times, width: int, loss: float | None
) -> None:
    served = Served()
    assert [served.width, served.serve(times), served.serve(times)] == [0, 1, 2]
    assert not served.rule.must_switch
    served.serve(times)
    # Until the model is loaded without what proposes, requests get the quickest width.
    assert served.rule.must_switch
    assert served.width == min((0, 1, 2), key=lambda each: (times[each], -each))
    assert served.rule.loss is None

    served.switch()
    assert served.serve(times) == NONE
    assert served.rule.must_switch == (width != NONE)
    served.switch()
    assert (served.width, served.rule.is_on) == (width, width != NONE)
    assert served.rule.loss == (None if loss is None else pytest.approx(loss))


def test_only_equal_numbers_of_streams_are_compared_and_a_slow_step_counts_little() -> None:
    served, times = Served(), {0: 1.0, 1: 3.0, 2: 3.0, 3: 2.0}
    served.serve(times, 8)
    # With one stream a token is always quicker, which says nothing about eight.
    assert served.serve({1: 0.1}, 1, 3 * NUM_TRIED) == 1
    assert served.serve(times, 8) == 2
    served.rule.note(2, 8, 16, 1e6)
    served.serve(times, 8)
    served.switch()
    served.serve(times, 8)
    assert served.rule.must_switch  # eight streams are quickest with all proposals


def test_all_widths_are_tried_again_a_day_later() -> None:
    served, slow = Served(), {0: 1.5, 1: 1.3, 2: 1.1, 3: 1.0}
    assert served.serve_all(slow) == NONE
    served.now_s = RETRY_S - 1
    served.serve(slow, num_steps=2 * NUM_TRIED)
    assert not served.rule.must_switch
    served.now_s = RETRY_S + 1
    served.serve(slow)
    assert served.rule.must_switch and served.rule.loss is None
    served.switch()
    assert served.serve_all({0: 1.0, 1: 1.1, 2: 1.2, 3: 1.3}) == 0


def test_a_request_gets_the_width_that_it_asks_for() -> None:
    served = Served()
    asked = SpeculativeDecoding(7, is_asked=True)
    served.serve({0: 1.0})
    assert served.rule.width_for(asked) is None
    assert limited(asked, None) == asked
    assert limited(SpeculativeDecoding(7, max_ngram_size=2), 1) == SpeculativeDecoding(
        3, max_ngram_size=2
    )
    assert limited(SpeculativeDecoding(confidence_threshold=0.5), 2) == SpeculativeDecoding(1)
    assert limited(SpeculativeDecoding(2), 1) == SpeculativeDecoding(2)


def script(rule: Speculation, times: Times) -> None:
    """Replace what the engine's steps have shown by these times."""
    for width, token_s in times.items():
        for _ in range(NUM_TRIED):
            rule.note(width, 1, 1, token_s)


@pytest.mark.live
@pytest.mark.parametrize("way", WAYS, ids=["draft model", "prompt lookup"])
def test_an_engine_stops_to_propose_and_its_texts_stay(way: dict[str, Any], tmp_path: Path) -> None:
    pipeline = pipeline_of(TINY_CHAT, tmp_path, **way)
    rule = pipeline.speculation

    def texts(loop: Loop) -> list[list[int]]:
        asked = SpeculativeDecoding(
            4, max_ngram_size=3 if "prompt_lookup" in way else None, is_asked=True
        )
        return [
            loop.ask("Count to 30.", max_new_tokens=40, **values).tokens
            for values in ({}, {"assist": asked}, {"sampling": SEEDED})
        ]

    with a_loop(pipeline, tmp_path, **way) as loop:
        expected = texts(loop)
        first = loop.kind.stats().tokens
        assert first.num_proposed_tokens > 0
        script(rule, {0: 1.5, 1: 1.3, 2: 1.2})
        loop.until(lambda: not rule.is_on)  # the model is loaded again while nothing runs

        assert texts(loop) == expected
        second = loop.kind.stats().tokens
        assert second.num_proposed_tokens == first.num_proposed_tokens
        assert second.num_output_tokens == 2 * first.num_output_tokens

        script(rule, {3: 1.0})
        assert loop.kind.stats().draft_loss == pytest.approx(0.2, abs=0.05)
