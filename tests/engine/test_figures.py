"""Speeds and waits of an engine."""

import pytest

from tests.fakes.clock import FakeClock
from vinery_serving.core.events import TokenCounts
from vinery_serving.engine.estimates import Figures


def set_counts(figures: Figures, num_prompt: int, num_output: int) -> None:
    figures.num_prompt_tokens, figures.num_output_tokens = num_prompt, num_output


def test_speeds_are_those_of_the_last_ten_seconds_and_waits_have_quantiles() -> None:
    clock = FakeClock()
    figures = Figures(clock)
    for second in range(30):
        set_counts(figures, 100 * second, 20 * second if second < 15 else 300)
        figures.sample()
        clock.pass_s(1.0)

    set_counts(figures, 3000, 300)
    prompt, output = figures.tokens_per_s

    assert prompt == pytest.approx(100)
    assert output == 0

    figures = Figures(FakeClock())
    assert figures.tokens_per_s == (0, 0)
    assert figures.first_token_s is figures.inter_token_s is None
    figures.ended(0.0, 0, 0, 0)
    assert figures.inter_token_s is None, "an answer of one token has no time between tokens"

    for number in range(1, 102):
        figures.first_token(number / 100, 9, 2)
        figures.ended(number * 10.0, 10, 4, 3)

    assert figures.first_token_s == (0.51, 0.96)
    assert figures.inter_token_s == (51.0, 96.0)
    assert figures.tokens == TokenCounts(
        909, num_cached_tokens=202, num_proposed_tokens=404, num_accepted_tokens=303
    )
    for _ in range(200):
        figures.first_token(1.5, 0, 0)
    assert figures.first_token_s == (1.5, 1.5), "only the last requests count"
