"""Both sides run in turn on the same prompts, and ratios are taken round by round."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.compare import Comparison, PromptMismatch
from benchmarks.measures import Run, Stream
from benchmarks.prompts import Prompt, PromptSource, counting

TINY_CHAT = Path(__file__).resolve().parents[2] / "models" / "tiny-chat"


@dataclass
class FakeSide:
    """Makes a token every `gap_s`, the first after `first_s`, and notes its turns.

    Requests for one token are only to wake it: `num_wakes` counts them.
    """

    name: str
    turns: list[tuple[str, tuple[int, ...]]]
    gap_s: float = 1.0
    first_s: float = 1.0
    extra_prompt_tokens: int = 0
    num_wakes: int = 0

    def run(self, prompts: list[Prompt], max_tokens: int) -> Run:
        if max_tokens == 1:
            self.num_wakes += 1
        else:
            self.turns.append((self.name, tuple(prompts[0].ids)))
        return Run(tuple(self._stream(prompt, max_tokens) for prompt in prompts))

    def _stream(self, prompt: Prompt, max_tokens: int) -> Stream:
        return Stream(
            started_s=0.0,
            chunks_s=tuple(self.first_s + self.gap_s * number for number in range(max_tokens)),
            num_prompt_tokens=len(prompt.ids) + self.extra_prompt_tokens,
            num_tokens=max_tokens,
            text="same",
        )


def comparison(bare: FakeSide, server: FakeSide) -> Comparison:
    prompts = PromptSource(TINY_CHAT, counting)
    return Comparison(bare, server, prompts, show=lambda line: None, rest=lambda: None)


def test_the_sides_take_turns_and_the_first_changes() -> None:
    turns: list[tuple[str, tuple[int, ...]]] = []
    bare, server = FakeSide("bare", turns), FakeSide("server", turns)

    comparison(bare, server).point(num_streams=2, max_tokens=4, num_rounds=2)

    names = [name for name, _ in turns]
    assert names == ["bare", "server", "bare", "server", "server", "bare"]
    assert (bare.num_wakes, server.num_wakes) == (3, 3), "each is woken before each run"
    # A round has one prompt for both sides.
    prompts = [prompt for _, prompt in turns]
    assert prompts[::2] == prompts[1::2]
    assert len(set(prompts)) == 3


def test_a_server_of_half_the_speed_has_half_the_ratio() -> None:
    bare, server = FakeSide("bare", []), FakeSide("server", [], gap_s=2.0, first_s=2.0)

    point = comparison(bare, server).point(num_streams=3, max_tokens=5, num_rounds=2)

    assert point.throughput_ratio.median == pytest.approx(0.5)
    assert point.token_gap_p50_ratio.median == pytest.approx(2.0)
    assert point.same_texts == 1.0


def test_the_added_time_is_the_median_of_the_differences() -> None:
    bare, server = FakeSide("bare", []), FakeSide("server", [], first_s=1.003)

    first = comparison(bare, server).first_token(num_requests=5)

    assert first.added_ms.median == pytest.approx(3.0)
    assert first.bare_p50_ms == pytest.approx(1000.0)
    server.extra_prompt_tokens = 1
    with pytest.raises(PromptMismatch, match="counts 30 prompt tokens"):
        comparison(bare, server).first_token(num_requests=1)
