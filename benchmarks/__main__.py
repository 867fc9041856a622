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

from benchmarks import performance, report
from benchmarks.bare import BareEngine
from benchmarks.calm import wait_until_calm
from benchmarks.compare import Comparison
from benchmarks.crowds import AT_ONCE, LOOPS, CrowdBench, CrowdsResult
from benchmarks.hook import HookEffort, HookResult, measure_hook
from benchmarks.idle import IdleResult, measure_idle
from benchmarks.load import Endpoint, ServedModel
from benchmarks.platform_under_test import OwnPlatform, own_platform, wait_until_it_answers
from benchmarks.progress import show
from benchmarks.prompts import Messages, PromptSource, counting, rambling
from benchmarks.random_models import half_billion, small
from benchmarks.recovery import RecoveryResult, measure_recovery
from benchmarks.settings import (
    CROWDS,
    HOOK,
    IDLE,
    RECOVERY,
    REPOSITORY,
    REQUESTS,
    SERVER,
    SPECULATION,
    TINY_CHAT,
    Settings,
    settings_from,
)
from benchmarks.short_requests import RequestResult, measure_requests
from benchmarks.speculation import SpeculationPoint, measure_speculation
from vinery_serving.engine.options import EngineOptions

T = TypeVar("T")

# What a conversation of `rambling` costs with the tokenizer of the 0.5b model.
_TOKENS_PER_WORD = 1.1
_TEMPLATE_TOKENS = 16
# The server writes down the usage of a run within half a second of its end.
_REST_S = 0.5
# Vocabularies of two sizes, and who writes their models.
_HOOK_MODELS = {"32k": small, "152k": half_billion}
_HOOK_ROUND_S = 1.0


@dataclass(frozen=True)
class Candidate:
    """A model to measure. `write` makes its prompts."""

    name: str
    folder: Path
    write: Callable[[int], Messages]


def main(argv: list[str] | None = None) -> int:
    """Measure, print, write. Raises what a side raises: half a comparison is worth nothing."""
    settings = settings_from(argv)
    machine, calms = report.machine(), []

    def measured(part: str, measure: Callable[[Settings], T]) -> T | None:
        if part not in settings.parts:
            return None
        calms.append(wait_until_calm(part))
        return measure(settings)

    finished = report.Report(
        settings.described,
        machine,
        results=measured(SERVER, _measure_server) or (),
        requests=measured(REQUESTS, _measure_requests),
        hooks=measured(HOOK, _measure_hooks) or (),
        speculation=measured(SPECULATION, _measure_speculation) or (),
        recovery=measured(RECOVERY, _measure_recovery),
        crowds=measured(CROWDS, _measure_crowds),
        idle=measured(IDLE, _measure_idle),
        calms=tuple(calms),
    )
    earlier, now = report.earlier(settings.output, performance.FIGURES), datetime.now(UTC)
    file = report.write(finished, settings.output, now)
    print(report.table(finished, earlier))
    show(f"written to {file}")
    if settings.draws:
        performance.publish(finished, earlier, now)
        show(f"written to {performance.PAGE}")
    return 0


def _measure_server(settings: Settings) -> tuple[report.ModelResult, ...]:
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


def _measure_requests(settings: Settings) -> RequestResult:
    show("starting a platform for short answers")
    with own_platform() as platform:
        wait_until_it_answers(platform.endpoint, TINY_CHAT)
        return measure_requests(
            platform.endpoint,
            TINY_CHAT,
            REPOSITORY / "models" / TINY_CHAT,
            EngineOptions(num_threads=settings.num_threads),
            num_rounds=settings.effort.rounds,
            num_requests=settings.effort.first_token_requests,
            show=show,
            rest=_rest,
        )


def _measure_hooks(settings: Settings) -> tuple[HookResult, ...]:
    effort = HookEffort(settings.effort.streams, settings.effort.rounds, _HOOK_ROUND_S)
    options = EngineOptions(num_threads=settings.num_threads)
    results = []
    for name, write in _HOOK_MODELS.items():
        show(f"{name}: the logits hook")
        folder = write(settings.cache)
        results.append(measure_hook(name, folder, options, effort))
    return tuple(results)


def _measure_speculation(settings: Settings) -> tuple[SpeculationPoint, ...]:
    show(f"{TINY_CHAT}: with tokens proposed ahead")
    models, effort = REPOSITORY / "models", settings.effort
    return measure_speculation(
        models / TINY_CHAT,
        models / "tiny-draft",
        PromptSource(models / TINY_CHAT, counting),
        streams=effort.streams,
        rounds=effort.rounds,
        num_tokens=effort.tokens,
        options=EngineOptions(num_threads=settings.num_threads),
    )


def _measure_recovery(settings: Settings) -> RecoveryResult:
    show("starting a platform to mistreat")
    streams = settings.effort.streams
    with own_platform() as platform:
        ends = (min(streams), max(streams))
        return measure_recovery(platform, tuple(dict.fromkeys(ends)), settings.effort.rounds)


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


def _measure_idle(settings: Settings) -> IdleResult:
    show("starting a platform that has nothing to do")
    return measure_idle(watch_s=settings.effort.idle_s, num_commands=settings.effort.rounds)


def _measure_model(
    settings: Settings, candidate: Candidate, platform: OwnPlatform | None
) -> report.ModelResult:
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
    return report.ModelResult(candidate.name, first_token, tuple(points))


@contextmanager
def _served(
    settings: Settings,
    candidate: Candidate,
    platform: OwnPlatform | None,
    options: EngineOptions,
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
    num_words = max(1, round((settings.effort.prompt_tokens - _TEMPLATE_TOKENS) / _TOKENS_PER_WORD))
    return Candidate(name, half_billion(settings.cache), rambling(num_words))


def _rest() -> None:
    time.sleep(_REST_S)


if __name__ == "__main__":
    sys.exit(main())
