"""Streams become numbers, sides that run in turn ratios, and the bare loop makes its tokens; what a
benchmark needs of the machine."""

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.bare import BareEngine
from benchmarks.compare import Comparison, PromptMismatch
from benchmarks.load import Endpoint
from benchmarks.machine import WebCpu, wait_until_calm
from benchmarks.measures import Run, Stream, medians, summary
from benchmarks.prompts import Prompt, PromptSource, counting
from benchmarks.settings import settings_from
from tests.tables import table
from vinery_serving.engine.options import EngineOptions


def stream(*chunks_s: float, num_tokens: int | None = None, text: str = "") -> Stream:
    return Stream(
        started_s=0.0,
        chunks_s=chunks_s,
        num_prompt_tokens=1,
        num_tokens=len(chunks_s) if num_tokens is None else num_tokens,
        text=text,
    )


def test_gaps_are_those_of_tokens_and_a_run_lasts_from_first_request_to_last_chunk() -> None:
    assert stream(0.25, 0.5).first_token_s == 0.25
    merged = stream(1.0, 3.0, 5.0, num_tokens=6)
    assert merged.chunk_gaps_s == [2.0, 2.0]
    assert merged.token_gaps_s == [1.0, 1.0]
    assert summary(Run((stream(0.5),))).token_gap_p99_ms == 0.0

    result = summary(Run((stream(0.5, 1.0), stream(0.5, 2.0)), web_cpu_s=0.002))
    assert result.tokens_per_s == 2.0
    assert result.web_cpu_us_per_token == 500.0
    assert result.client_cpu_us_per_token is None
    with pytest.raises(ValueError, match="without any output"):
        stream(num_tokens=0)


def test_a_median_is_taken_field_by_field() -> None:
    rounds = [summary(Run((stream(first, 2.0),), web_cpu_s=1.0)) for first in (0.1, 0.5, 0.3)]

    middle = medians(rounds)
    assert middle.first_token_p50_ms == pytest.approx(300)
    assert middle.web_cpu_us_per_token == 500_000
    without = summary(Run((stream(0.1),), web_cpu_s=None))
    assert medians([*rounds, without]).web_cpu_us_per_token is None


TINY_CHAT = Path(__file__).resolve().parents[2] / "models" / "tiny-chat"
OPTIONS = EngineOptions(num_threads=1)


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

    assert [name for name, _ in turns] == ["bare", "server", "bare", "server", "server", "bare"]
    assert (bare.num_wakes, server.num_wakes) == (3, 3), "each is woken before each run"
    # A round has one prompt for both sides.
    prompts = [prompt for _, prompt in turns]
    assert prompts[::2] == prompts[1::2]
    assert len(set(prompts)) == 3


def test_half_the_speed_is_half_the_ratio_and_the_median_of_differences_is_added() -> None:
    bare, server = FakeSide("bare", []), FakeSide("server", [], gap_s=2.0, first_s=2.0)

    point = comparison(bare, server).point(num_streams=3, max_tokens=5, num_rounds=2)
    assert point.throughput_ratio.median == pytest.approx(0.5)
    assert point.token_gap_p50_ratio.median == pytest.approx(2.0)
    assert point.same_texts == 1.0

    bare, server = FakeSide("bare", []), FakeSide("server", [], first_s=1.003)

    first = comparison(bare, server).first_token(num_requests=5)
    assert first.added_ms.median == pytest.approx(3.0)
    assert first.bare_p50_ms == pytest.approx(1000.0)
    server.extra_prompt_tokens = 1
    with pytest.raises(PromptMismatch, match="counts 30 prompt tokens"):
        comparison(bare, server).first_token(num_requests=1)


@pytest.mark.live
def test_it_answers_many_prompts_token_by_token_but_not_without_a_model(tmp_path: Path) -> None:
    source = PromptSource(TINY_CHAT, counting)
    prompts = source.take(4)

    with BareEngine(TINY_CHAT, OPTIONS) as bare:
        run = bare.run(prompts, max_tokens=24)
        texts = [bare.run(source.take(1), max_tokens=8).streams[0].text for _ in range(2)]

    assert [stream.num_tokens for stream in run.streams] == [24] * 4
    assert {len(stream.chunks_s) for stream in run.streams} == {24}
    assert all(stream.text.startswith("1 2 3 4 5") for stream in run.streams)
    assert [stream.num_prompt_tokens for stream in run.streams] == [len(p.ids) for p in prompts]
    assert len(set(texts)) == 1

    with pytest.raises(EOFError), BareEngine(tmp_path, OPTIONS):
        pass


# -- Settings and the machine


def test_it_counts_the_work_of_the_process_that_listens_and_else_has_no_number() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        cpu = WebCpu(f"http://127.0.0.1:{server.getsockname()[1]}")
        before_s = cpu.used_s()
        own_s = time.process_time()
        sum(range(200_000))
        worked_s = time.process_time() - own_s
        after_s = cpu.used_s()

    assert before_s is not None
    assert after_s is not None
    assert after_s - before_s >= worked_s > 0

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    assert WebCpu(f"http://127.0.0.1:{port}").used_s() is None
    assert WebCpu("http://192.0.2.1:8000").used_s() is None


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
        ((0.9,), (False, 120.0, 0.9)),
    ],
)
def test_it_waits_for_a_calm_machine_and_names_a_busy_one(
    busy: tuple[float, ...], found: tuple[bool, float, float]
) -> None:
    look, clock = looks(*busy)

    calm = wait_until_calm("server", busy_for=look, clock=clock)

    assert (calm.is_calm, calm.waited_s, calm.busy) == found


def test_it_measures_all_by_default_but_what_is_given_wins_and_never_reports_the_key() -> None:
    settings = settings_from([])
    assert settings.models == ("tiny-chat", "0.5b")
    assert settings.effort.streams == (1, 8, 32, 64)
    assert settings.server is None
    assert settings.parts == ("server", "speculation", "crowds")
    assert settings_from(["--only", "crowds"]).parts == ("crowds",)

    effort = settings_from(["--quick", "--streams", "64", "--tokens", "16"]).effort
    assert (effort.streams, effort.tokens, effort.rounds) == ((64,), 16, 1)

    settings = settings_from(["--server-url", "http://127.0.0.1:8000/", "--api-key", "secret"])
    assert settings.server == Endpoint("http://127.0.0.1:8000", "secret")
    assert "secret" not in str(settings.described)
    assert settings.described["server"] == "http://127.0.0.1:8000"
