"""What happens at five times what the machine can do: three phases of an open loop, 1x, 5x and 1x.

The capacity is the most answers per second that closed loops of a few sizes get, and goodput is
compared with it. 1x is four fifths of it: at the whole of it any open loop has a queue that grows
without end. Requests arrive at random times (a seeded Poisson process) and do not wait for each
other, as those of many clients do. All have one key, and one request in ten has a long prompt. A
refused client does not return, but one in twenty does, once, after the time in `Retry-After` and
with the same request: the few that return change the load little, and show whether the time was
true. The client and the server share the cores.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final

import numpy as np
import uvloop

from benchmarks.load import Connection, Endpoint
from benchmarks.progress import show
from benchmarks.settings import TINY_CHAT
from benchmarks.wire import BadResponse, Head, read_stream

_PHASES: Final = (("1x", 1.0), ("5x", 5.0), ("1x again", 1.0))
_CAPACITY_STREAMS: Final = (16, 32, 64)
_LOAD_OF_CAPACITY: Final = 0.8
_LONG_EVERY: Final = 10  # one request in so many has a long prompt
_NUM_LONG_TOKENS: Final = 1200
_MAX_TOKENS: Final = 64
_RETURNING_EVERY: Final = 20
_ANSWER_TIMEOUT_S: Final = 120.0
# Latency is back from the second on after which the p99 of first tokens is at most so many times
# that of the first phase.
_USUAL: Final = 1.1


@dataclass(frozen=True)
class Outcome:
    """One request. Times are seconds; None where there was no such event."""

    sent_s: float  # since the start of the first phase
    is_long: bool
    status: int
    first_token_s: float | None = None
    ended_s: float | None = None  # since it was sent
    retry_after_s: float | None = None
    number: int | None = None  # of a refused request


@dataclass(frozen=True)
class PhaseResult:
    name: str
    requests_per_s: float
    num_requests: int
    goodput_per_s: float  # answers that were completed during the phase, of any phase
    num_failed: int  # neither an answer nor a refusal
    short_first_token_ms: tuple[float, float]  # p50, p99
    long_first_token_ms: tuple[float, float]
    first_token_ms: tuple[float, float]  # of all that were admitted
    refusal_ms: tuple[float, float]
    retry_after_s: tuple[float, float]
    num_returned: int = 0  # refused clients that came back during the phase
    num_returned_admitted: int = 0
    back_after_s: float | None = None  # of the last phase: until latency is that of the first


@dataclass(frozen=True)
class OverloadResult:
    capacity_per_s: float
    phases: tuple[PhaseResult, ...]


@dataclass
class _Client:
    """Sends requests and reads their answers."""

    endpoint: Endpoint
    numbers: Iterator[int] = field(default_factory=count)
    idle: list[Connection] = field(default_factory=list)

    async def ask(self, began_s: float, number: int | None = None) -> Outcome:
        """Send a new request, or that of a `number` again."""
        number = next(self.numbers) if number is None else number
        is_long = number % _LONG_EVERY == _LONG_EVERY - 1
        sent_s = time.perf_counter()
        head: Head | None = None
        connection: Connection | None = None
        try:
            async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                connection = self.idle.pop() if self.idle else await self._connect()
                await connection.ask(_request(self.endpoint, number, is_long=is_long))
            received = b"".join(connection.arrivals.reads)
            head = Head.of(received)
            status = 0 if head is None else head.status
            if status != 200:
                ended_s = connection.arrivals.times_s[-1] - sent_s
                retry = _retry_after(received)
                self.idle.append(connection)
                return Outcome(sent_s - began_s, is_long, status, None, ended_s, retry, number)
            stream = read_stream(sent_s, connection.arrivals)
            self.idle.append(connection)
            ended_s = stream.chunks_s[-1] - sent_s
            return Outcome(sent_s - began_s, is_long, 200, stream.first_token_s, ended_s)
        except (BadResponse, OSError, TimeoutError):
            if connection is not None:
                connection.close()
            return Outcome(sent_s - began_s, is_long, 0)

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(Connection, *self.endpoint.address)
        return connection


def measure_overload(endpoint: Endpoint, phase_s: float) -> OverloadResult:
    """Measure a server that serves the reference model and nothing else meanwhile."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_measure(_Client(endpoint), phase_s))


async def _measure(client: _Client, phase_s: float) -> OverloadResult:
    capacities = [
        await _capacity(client, num, phase_s / len(_CAPACITY_STREAMS)) for num in _CAPACITY_STREAMS
    ]
    capacity = max(capacities)
    shown = ", ".join(f"{each:.1f}" for each in capacities)
    show(f"  {shown} answers/s in closed loops of {_CAPACITY_STREAMS}")
    # Phases follow each other without a pause: the backlog of one is in the next.
    tasks: list[tuple[str, float, list[asyncio.Task[Outcome]]]] = []
    returning: list[asyncio.Task[Outcome]] = []
    began_s = time.perf_counter()
    for number, (name, factor) in enumerate(_PHASES):
        rate = capacity * _LOAD_OF_CAPACITY * factor
        arrivals = _arrivals(rate, number * phase_s, phase_s)
        of_phase = await _phase(client, arrivals, began_s, returning)
        await asyncio.sleep(max(0.0, began_s + (number + 1) * phase_s - time.perf_counter()))
        tasks.append((name, rate, of_phase))
        show(f"  {name}: {len(of_phase)} requests sent")
    phases = [(name, rate, list(await asyncio.gather(*of_phase))) for name, rate, of_phase in tasks]
    returned = [each.result() for each in returning if each.done() and not each.cancelled()]
    for each in returning:
        each.cancel()
    everything = [outcome for _, _, outcomes in phases for outcome in outcomes] + returned
    results = []
    for number, (name, rate, outcomes) in enumerate(phases):
        start_s = number * phase_s
        result = _summary(name, rate, outcomes, _goodput(everything, start_s, phase_s))
        num, num_admitted = _returns(returned, start_s, phase_s)
        results.append(replace(result, num_returned=num, num_returned_admitted=num_admitted))
    first, last = phases[0][2], phases[-1][2]
    back_s = _back_after_s(first, last) - (len(phases) - 1) * phase_s
    results[-1] = replace(results[-1], back_after_s=max(0.0, back_s))
    return OverloadResult(capacity, tuple(results))


def _returns(returned: Sequence[Outcome], start_s: float, phase_s: float) -> tuple[int, int]:
    """Return how many came back during a phase, and how many of these were admitted."""
    statuses = [each.status for each in returned if start_s <= each.sent_s < start_s + phase_s]
    return len(statuses), statuses.count(200)


def _goodput(outcomes: Sequence[Outcome], start_s: float, phase_s: float) -> float:
    """Return the answers that were completed in a phase, per second."""
    ends_s = [each.sent_s + (each.ended_s or 0.0) for each in outcomes if each.status == 200]
    return sum(start_s <= end_s < start_s + phase_s for end_s in ends_s) / phase_s


async def _capacity(client: _Client, num_streams: int, duration_s: float) -> float:
    began_s = time.perf_counter()
    outcomes: list[Outcome] = []

    async def worker() -> None:
        while time.perf_counter() < began_s + duration_s:
            outcomes.append(await client.ask(began_s))
            await asyncio.sleep(outcomes[-1].retry_after_s or 0.0)

    await asyncio.gather(*[worker() for _ in range(num_streams)])
    num_answers = sum(outcome.status == 200 for outcome in outcomes)
    return num_answers / (time.perf_counter() - began_s)


def _arrivals(rate: float, start_s: float, phase_s: float) -> Iterator[float]:
    """Yield the times of a Poisson process, in seconds since the first phase began."""
    random_gaps = random.Random(7)
    at_s = start_s + random_gaps.expovariate(rate)
    while at_s < start_s + phase_s:
        yield at_s
        at_s += random_gaps.expovariate(rate)


async def _phase(
    client: _Client,
    arrivals: Iterator[float],
    began_s: float,
    returning: list[asyncio.Task[Outcome]],
) -> list[asyncio.Task[Outcome]]:
    tasks: list[asyncio.Task[Outcome]] = []

    async def ask(*, may_return: bool) -> Outcome:
        outcome = await client.ask(began_s)
        if may_return and outcome.retry_after_s is not None:
            returning.append(asyncio.create_task(come_back(outcome)))
        return outcome

    async def come_back(refused: Outcome) -> Outcome:
        await asyncio.sleep(refused.retry_after_s or 0.0)
        return await client.ask(began_s, refused.number)

    for number, at_s in enumerate(arrivals):
        await asyncio.sleep(max(0.0, began_s + at_s - time.perf_counter()))
        tasks.append(asyncio.create_task(ask(may_return=number % _RETURNING_EVERY == 0)))
    return tasks


def _request(endpoint: Endpoint, number: int, *, is_long: bool) -> bytes:
    options = {
        "model": TINY_CHAT,
        "max_tokens": _MAX_TOKENS,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if is_long:
        ids = np.random.default_rng(number).integers(300, 2900, _NUM_LONG_TOKENS).tolist()
        return endpoint.post("/v1/completions", {"prompt": ids, "ignore_eos": True, **options})
    content = f"Session {number}. Count to 60."
    messages = [{"role": "user", "content": content}]
    return endpoint.post("/v1/chat/completions", {"messages": messages, **options})


def _retry_after(received: bytes) -> float | None:
    head = received.partition(b"\r\n\r\n")[0].lower()
    _, found, rest = head.partition(b"\r\nretry-after:")
    return float(rest.partition(b"\r\n")[0]) if found else None


def _summary(
    name: str, rate: float, outcomes: Sequence[Outcome], goodput_per_s: float
) -> PhaseResult:
    answered = [each for each in outcomes if each.status == 200]
    refused = [each for each in outcomes if each.status in (429, 503)]
    return PhaseResult(
        name=name,
        requests_per_s=rate,
        num_requests=len(outcomes),
        goodput_per_s=goodput_per_s,
        num_failed=len(outcomes) - len(answered) - len(refused),
        short_first_token_ms=_ms([each.first_token_s for each in answered if not each.is_long]),
        long_first_token_ms=_ms([each.first_token_s for each in answered if each.is_long]),
        first_token_ms=_ms([each.first_token_s for each in answered]),
        refusal_ms=_ms([each.ended_s for each in refused]),
        retry_after_s=_percentiles([each.retry_after_s or 0.0 for each in refused]),
    )


def _back_after_s(first: Sequence[Outcome], last: Sequence[Outcome]) -> float:
    """Return from which second on the first tokens of `last` are as early as those of `first`."""
    usual_s = _USUAL * _percentiles([each.first_token_s or 0.0 for each in first])[1]
    for second in range(math.floor(last[0].sent_s), math.ceil(last[-1].sent_s)):
        later = [each.first_token_s or 0.0 for each in last if each.sent_s >= second]
        if _percentiles(later)[1] <= usual_s:
            return second
    return math.ceil(last[-1].sent_s)


def _ms(values_s: Sequence[float | None]) -> tuple[float, float]:
    p50, p99 = _percentiles([value for value in values_s if value is not None])
    return p50 * 1000, p99 * 1000


def _percentiles(values: Sequence[float]) -> tuple[float, float]:
    if not values:
        return 0.0, 0.0
    p50, p99 = np.percentile(values, [50, 99]).tolist()
    return p50, p99


def table(result: OverloadResult) -> str:
    """Return the phases as a table, and what they come to."""
    head = (
        f"overload: {TINY_CHAT}, {result.capacity_per_s:.1f} answers/s in the best of closed loops "
        f"of {', '.join(map(str, _CAPACITY_STREAMS))}\n"
        f"{'phase':<10}{'req/s':>7}{'goodput':>9}{'failed':>8}{'short ms p50/p99':>18}"
        f"{'long ms p50/p99':>18}{'refusal ms p50/p99':>20}{'retry s p50/p99':>17}"
        f"{'returned':>10}{'back s':>8}"
    )
    return "\n".join([head, *map(_line, result.phases), *_ratios(result)])


def _ratios(result: OverloadResult) -> list[str]:
    """Return one line about the second phase, compared with the first."""
    if len(result.phases) != len(_PHASES):
        return []
    first, second = result.phases[:2]
    late = second.first_token_ms[1] / max(1.0, first.first_token_ms[1])
    part = second.goodput_per_s / result.capacity_per_s
    return [
        f"at {second.name}: {part:.0%} of the best goodput; p99 of first tokens "
        f"{second.first_token_ms[1]:.0f} ms, {late:.1f} times that of {first.name}"
    ]


def _line(phase: PhaseResult) -> str:
    def pair(values: tuple[float, float]) -> str:
        return f"{values[0]:.0f}/{values[1]:.0f}"

    back = "" if phase.back_after_s is None else f"{phase.back_after_s:.0f}"
    returned = f"{phase.num_returned_admitted}/{phase.num_returned}"
    return (
        f"{phase.name:<10}{phase.requests_per_s:>7.1f}{phase.goodput_per_s:>9.1f}"
        f"{phase.num_failed:>8}{pair(phase.short_first_token_ms):>18}"
        f"{pair(phase.long_first_token_ms):>18}{pair(phase.refusal_ms):>20}"
        f"{pair(phase.retry_after_s):>17}{returned:>10}{back:>8}"
    )
