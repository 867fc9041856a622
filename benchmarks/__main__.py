"""`python -m benchmarks`: this server beside the bare engine, in one run.

Same model, prompts, lengths and scheduler settings on both sides, in turn. Progress goes to
standard error, the table to standard output, everything to a JSON file.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import report
from benchmarks.bare import BareEngine
from benchmarks.compare import Comparison
from benchmarks.load import Endpoint, ServedModel
from benchmarks.model05b import model_05b
from benchmarks.platform_under_test import OwnPlatform, own_platform, wait_until_it_answers
from benchmarks.prompts import Messages, PromptSource, counting, rambling
from benchmarks.settings import REPOSITORY, TINY_CHAT, Settings, settings_from
from serving.engine.config import EngineOptions

# What a conversation of `rambling` costs with the tokenizer of the 0.5b model.
_TOKENS_PER_WORD = 1.1
_TEMPLATE_TOKENS = 16
# The server writes down the usage of a run within half a second of its end.
_REST_S = 0.5


@dataclass(frozen=True)
class Candidate:
    """A model to measure. `write` makes its prompts."""

    name: str
    folder: Path
    write: Callable[[int], Messages]


def main(argv: list[str] | None = None) -> int:
    """Measure, print, write. Raises what a side raises: half a comparison is worth nothing."""
    settings = settings_from(argv)
    machine = report.machine()
    results = []
    with ExitStack() as stack:
        platform = None
        if settings.server is None:
            _tell("starting a platform")
            platform = stack.enter_context(own_platform())
            platform.remove(TINY_CHAT)  # it registers the reference model; we add our own
        for name in settings.models:
            results.append(_measure(settings, _candidate(settings, name), platform))
    finished = report.Report(settings.described, machine, tuple(results))
    now = datetime.now(UTC)
    file = report.write(finished, settings.output, now)
    print(report.table(finished))
    _tell(f"written to {file}")
    return 0


def _measure(
    settings: Settings, candidate: Candidate, platform: OwnPlatform | None
) -> report.ModelResult:
    options = EngineOptions(num_threads=settings.num_threads)
    prompts = PromptSource(candidate.folder, candidate.write)
    _tell(f"{candidate.name}: loading twice")
    with (
        _served(settings, candidate, platform, options) as endpoint,
        ServedModel(endpoint, candidate.name) as server,
        BareEngine(candidate.folder, options) as bare,
    ):
        comparison = Comparison(bare, server, prompts, _tell, _rest)
        _tell(f"{candidate.name}: first tokens")
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
    _tell(f"{name}: looking for its folder in {settings.cache}")
    num_words = max(1, round((settings.effort.prompt_tokens - _TEMPLATE_TOKENS) / _TOKENS_PER_WORD))
    return Candidate(name, model_05b(settings.cache), rambling(num_words))


def _rest() -> None:
    time.sleep(_REST_S)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
