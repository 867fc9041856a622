"""`python -m benchmarks`: all parts of the benchmark in one run, or one of them.

Progress goes to standard error, the tables to standard output, everything to a JSON file.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from benchmarks import machine, performance, report
from benchmarks.bare import BareEngine
from benchmarks.compare import Comparison, ModelResult
from benchmarks.crowds import AT_ONCE, LOOPS, CrowdBench, CrowdsResult
from benchmarks.load import Endpoint, ServedModel
from benchmarks.machine import REPOSITORY, show, wait_until_calm
from benchmarks.platform_under_test import OwnPlatform, own_platform, wait_until_it_answers
from benchmarks.prompts import Messages, PromptSource, counting, rambling
from benchmarks.settings import CROWDS, SERVER, SPECULATION, TINY_CHAT, Settings, settings_from
from benchmarks.speculation import SpeculationPoint, measure_speculation
from tests.random_models.decoder import INT8_STD, DecoderShape
from tests.random_models.folder import write_folder
from vinery_serving.engine.options import EngineOptions

T = TypeVar("T")

# The tokens of a conversation of `rambling` beside its words, each of one token.
_TEMPLATE_TOKENS = 9
# The server writes down the usage of a run within half a second of its end.
_REST_S = 0.5
# The measures of Qwen2-0.5B with random weights: speed does not depend on their values, so nothing
# is downloaded. The answers are words without sense, and never end by themselves.
HALF_BILLION_SHAPE = DecoderShape(
    model_type="qwen2",
    vocab_size=151_936,
    hidden_size=896,
    intermediate_size=4_864,
    num_hidden_layers=24,
    num_attention_heads=14,
    num_key_value_heads=2,
    tie_word_embeddings=True,
    initializer_range=INT8_STD / 1024,  # about 0.07, see `checkpoints`
)


@dataclass(frozen=True)
class Candidate:
    """A model to measure. `write` makes its prompts."""

    name: str
    folder: Path
    write: Callable[[int], Messages]


def main(argv: list[str] | None = None) -> int:
    """Measure, print, write. Raises what a side raises: half a comparison is worth nothing."""
    settings = settings_from(argv)
    facts, calms = machine.facts(), []

    def measured(part: str, measure: Callable[[Settings], T]) -> T | None:
        if part not in settings.parts:
            return None
        calms.append(wait_until_calm(part))
        return measure(settings)

    finished = report.Report(
        settings.described,
        facts,
        results=measured(SERVER, _measure_server) or (),
        speculation=measured(SPECULATION, _measure_speculation) or (),
        crowds=measured(CROWDS, _measure_crowds),
        calms=tuple(calms),
    )
    earlier, now = report.earlier(settings.output), datetime.now(UTC)
    file = report.write(finished.document(now), settings.output, now)
    print("\n".join(performance.section(finished, earlier, now)))
    show(f"written to {file}")
    if settings.draws:
        performance.publish(finished, earlier, now)
        show(f"written to {performance.PAGE}")
    return 0


def _measure_server(settings: Settings) -> tuple[ModelResult, ...]:
    with ExitStack() as stack:
        platform = None
        if settings.server is None:
            show("starting a platform")
            platform = stack.enter_context(own_platform())
            platform.remove(TINY_CHAT)  # it registers the reference model; we add our own
        return tuple(
            _measure_model(settings, _candidate(settings, name), platform)
            for name in settings.models
        )


def _measure_speculation(settings: Settings) -> tuple[SpeculationPoint, ...]:
    show(f"{TINY_CHAT}: with tokens proposed ahead")
    models, effort = REPOSITORY / "models", settings.effort
    return measure_speculation(
        models / TINY_CHAT,
        models / "tiny-draft",
        streams=effort.streams,
        rounds=effort.rounds,
        num_tokens=effort.tokens,
        options=EngineOptions(num_threads=settings.num_threads),
    )


def _measure_crowds(settings: Settings) -> CrowdsResult:
    show("starting a platform for crowds")
    effort, folder = settings.effort, REPOSITORY / "models" / TINY_CHAT
    options = EngineOptions(num_threads=settings.num_threads)
    with own_platform() as platform, BareEngine(folder, options) as bare:
        wait_until_it_answers(platform.endpoint, TINY_CHAT)
        bench = CrowdBench(platform.endpoint, bare, PromptSource(folder, counting))
        crowds = bench.crowds([each for each in (*LOOPS, *AT_ONCE) if each[0] <= effort.crowd])
        secret = platform.run("key", "create", "--name", "neighbour").strip()
        other = Endpoint(platform.endpoint.base_url, secret)
        return CrowdsResult(crowds, bench.neighbours(other, effort.crowd // 2, effort.chats))


def _measure_model(
    settings: Settings, candidate: Candidate, platform: OwnPlatform | None
) -> ModelResult:
    options = EngineOptions(num_threads=settings.num_threads)
    prompts = PromptSource(candidate.folder, candidate.write)
    show(f"{candidate.name}: loading twice")
    with (
        _served(settings, candidate, platform, options) as endpoint,
        ServedModel(endpoint, candidate.name) as server,
        BareEngine(candidate.folder, options) as bare,
    ):
        comparison = Comparison(bare, server, prompts, show, _rest)
        show(f"{candidate.name}: first tokens")
        first_token = comparison.first_token(settings.effort.first_token_requests)
        points = [
            comparison.point(num_streams, settings.effort.tokens, settings.effort.rounds)
            for num_streams in settings.effort.streams
        ]
    return ModelResult(candidate.name, first_token, tuple(points))


@contextmanager
def _served(
    settings: Settings, candidate: Candidate, platform: OwnPlatform | None, options: EngineOptions
) -> Iterator[Endpoint]:
    """Serve the model for a while, alone: the engine of another one is never quite idle."""
    if platform is None:
        assert settings.server is not None
        wait_until_it_answers(settings.server, candidate.name)
        yield settings.server
        return
    platform.serve(candidate.name, candidate.folder, {"num_threads": options.num_threads})
    yield platform.endpoint
    platform.remove(candidate.name)


def _candidate(settings: Settings, name: str) -> Candidate:
    if name == TINY_CHAT:
        return Candidate(name, REPOSITORY / "models" / TINY_CHAT, counting)
    show(f"{name}: looking for its folder in {settings.cache}")
    num_words = max(1, settings.effort.prompt_tokens - _TEMPLATE_TOKENS)
    return Candidate(name, half_billion(settings.cache), rambling(num_words))


def half_billion(cache: Path) -> Path:
    """The folder of the 0.5b model inside `cache`, written (500 MB) when it is not there."""
    folder = cache / "random-qwen2-0.5b-v3"
    if not folder.exists():
        write_folder(HALF_BILLION_SHAPE, folder)
    return folder


def _rest() -> None:
    time.sleep(_REST_S)


if __name__ == "__main__":
    sys.exit(main())
