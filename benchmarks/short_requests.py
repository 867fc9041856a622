"""Many short answers: at once, right after a start, and what one costs the web process.

With long answers the cost of tokens hides that of requests, and a platform under load has long been
warm. So this part starts a platform, measures it at once, and then asks for little.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.bare import BareEngine
from benchmarks.compare import Comparison, Point, Side, Spread
from benchmarks.load import Endpoint, ServedModel
from benchmarks.prompts import PromptSource, counting, counting_after
from vinery_serving.engine.options import EngineOptions

# 32 users who arrive at once with prompts of about 130 tokens.
_NUM_USERS: Final = 32
_NUM_WORDS: Final = 56
_NUM_TOKENS: Final = 64
# A burst takes a tenth of a second, so there are more rounds of it than of long answers.
_ROUNDS_FACTOR: Final = 4
_READY_STREAMS: Final = 8
_READY_RUNS: Final = 3
# So that the longer answer shows what a token costs.
_LONG_ANSWER: Final = 65


@dataclass(frozen=True)
class RequestResult:
    """Of tiny-chat."""

    burst: Point
    web_cpu_ms: float  # of a streamed request alone, without its tokens
    ready_ratio: Spread  # tokens per second of the first runs by those of a warm platform


def measure_requests(
    endpoint: Endpoint,
    model: str,
    folder: Path,
    options: EngineOptions,
    *,
    num_rounds: int,
    num_requests: int,
    show: Callable[[str], None],
    rest: Callable[[], None],
) -> RequestResult:
    """Measure a platform that is just ready. Raises what a side raises, and PromptMismatch."""
    with ServedModel(endpoint, model) as server:
        answers = PromptSource(folder, counting)
        first = [_speed(server, answers) for _ in range(_READY_RUNS)]
        show("  one request after the other")
        web_cpu_ms = _web_cpu_ms(server, answers, num_requests)
        warm = median([_speed(server, answers) for _ in range(_READY_RUNS)])
        with BareEngine(folder, options) as bare:
            prompts = PromptSource(folder, counting_after(_NUM_WORDS))
            comparison = Comparison(bare, server, prompts, show, rest)
            burst = comparison.point(_NUM_USERS, _NUM_TOKENS, num_rounds * _ROUNDS_FACTOR)
    return RequestResult(burst, web_cpu_ms, Spread.of([each / warm for each in first]))


def _speed(server: Side, answers: PromptSource) -> float:
    run = server.run(answers.take(_READY_STREAMS), _NUM_TOKENS)
    return run.num_tokens / run.duration_s


def _web_cpu_ms(server: Side, answers: PromptSource, num_requests: int) -> float:
    """Answers of one token and of many show what a token costs; the remainder is the request."""
    times_s: dict[int, list[float]] = {1: [], _LONG_ANSWER: []}
    for _ in range(num_requests):
        for num_tokens, used_s in times_s.items():
            run = server.run(answers.take(1), num_tokens)
            assert run.web_cpu_s is not None  # the platform is on this machine
            used_s.append(run.web_cpu_s)
    short_s, long_s = (median(each) for each in times_s.values())
    return (short_s - (long_s - short_s) / (_LONG_ANSWER - 1)) * 1e3
