"""Crowds: many clients that wait for their answers, beside the bare loop, and a crowd's neighbour.

A client of a closed loop asks again right after its answer; all requests *at once* are a loop in
which each client asks once. The bare loop has as many requests at the same time. The client and the
server share the cores.

The neighbour asks short chats with another key, one after the other, beside a key with one stream
and beside a key with hundreds of long prompts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import psutil
import uvloop

from benchmarks.bare import BareEngine
from benchmarks.load import BadResponse, Connection, Endpoint, connect, read_stream, streamed
from benchmarks.machine import listeners, show
from benchmarks.measures import Run, Stream, percentile_ms
from benchmarks.prompts import Prompt, PromptSource
from benchmarks.settings import TINY_CHAT

MAX_TOKENS: Final = 64
LONG_PROMPT_TOKENS: Final = 1200
# (clients, requests of each)
LOOPS: Final = ((1, 16), (8, 8), (32, 8), (64, 6), (128, 4), (256, 3))
AT_ONCE: Final = ((1, 1), (10, 1), (100, 1), (1000, 1))
_ANSWER_TIMEOUT_S: Final = 600.0
_CHAT_TOKENS: Final = 8  # of the neighbour
_CROWD_S: Final = 2.0  # of the other key's requests alone, before the first chat


@dataclass(frozen=True)
class Crowd:
    """A loop on both sides. Times are milliseconds."""

    num_clients: int
    num_requests: int
    num_refused: int
    num_failed: int  # neither an answer nor a refusal
    tokens_per_s: float
    bare_tokens_per_s: float
    first_token_p50_ms: float
    first_token_p99_ms: float
    slowest_ms: float  # answer, to its last token
    web_peak_mb: float  # since the start of the web processes


@dataclass(frozen=True)
class Neighbour:
    """First tokens of a key's short chats beside another key. Times are milliseconds."""

    beside: str
    num_refused: int
    first_token_p50_ms: float
    first_token_p99_ms: float


@dataclass(frozen=True)
class CrowdsResult:
    crowds: tuple[Crowd, ...]
    neighbours: tuple[Neighbour, ...]


@dataclass
class _Answers:
    streams: list[Stream] = field(default_factory=list)
    num_refused: int = 0
    num_failed: int = 0


class CrowdBench:
    """Measures a server of the reference model that serves nothing else meanwhile."""

    def __init__(self, endpoint: Endpoint, bare: BareEngine, prompts: PromptSource) -> None:
        self._endpoint = endpoint
        self._bare = bare
        self._prompts = prompts

    def crowds(self, loops: Sequence[tuple[int, int]] = (*LOOPS, *AT_ONCE)) -> tuple[Crowd, ...]:
        return tuple(self._crowd(num, num * each) for num, each in loops)

    def neighbours(self, other: Endpoint, num_long: int, num_chats: int) -> tuple[Neighbour, ...]:
        """Measure this endpoint's key beside the key of `other`."""
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            endless = [_completion(other, 0, num_prompt_tokens=8, max_tokens=1900)]
            long = [_completion(other, number, LONG_PROMPT_TOKENS) for number in range(num_long)]
            return tuple(
                runner.run(self._beside(what, requests, num_chats))
                for what, requests in (("one stream", endless), (f"{num_long} prompts", long))
            )

    def _crowd(self, num_clients: int, num_requests: int) -> Crowd:
        prompts = self._prompts.take(num_requests)
        bare = self._bare.run(prompts, MAX_TOKENS, num_clients)
        requests = [_chat(self._endpoint, prompt) for prompt in prompts]
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            answers = runner.run(_loop(self._endpoint, requests, num_clients))
        run = Run(tuple(answers.streams))
        first_s = [each.first_token_s for each in run.streams]
        slowest_s = max(each.chunks_s[-1] - each.started_s for each in run.streams)
        crowd = Crowd(
            num_clients,
            num_requests,
            answers.num_refused,
            answers.num_failed,
            run.num_tokens / run.duration_s,
            bare.num_tokens / bare.duration_s,
            percentile_ms(first_s, 50),
            percentile_ms(first_s, 99),
            slowest_s * 1e3,
            _web_peak_mb(self._endpoint),
        )
        show(f"  {' '.join(_row(crowd))}")
        return crowd

    async def _beside(self, what: str, requests: list[bytes], num_chats: int) -> Neighbour:
        """Ask the chats while the other key's requests run or wait, each again at its end."""
        beside = [asyncio.create_task(_ask_again(self._endpoint, each)) for each in requests]
        await asyncio.sleep(_CROWD_S)
        prompts = self._prompts.take(num_chats)
        chats = [_chat(self._endpoint, prompt, _CHAT_TOKENS) for prompt in prompts]
        answers = await _loop(self._endpoint, chats, 1)
        for each in beside:
            each.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        first_s = [each.first_token_s for each in answers.streams]
        p50_ms, p99_ms = percentile_ms(first_s, 50), percentile_ms(first_s, 99)
        show(f"  beside {what}: first token {p50_ms:.0f} ms, p99 {p99_ms:.0f} ms")
        return Neighbour(what, answers.num_refused, p50_ms, p99_ms)


async def _loop(endpoint: Endpoint, requests: Sequence[bytes], num_clients: int) -> _Answers:
    """Send all requests, so many at the same time."""
    left, answers = iter(requests), _Answers()

    async def client() -> None:
        connection = await connect(endpoint)
        for request in left:
            connection = await _ask(endpoint, connection, request, answers)
        connection.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(num_clients):
            group.create_task(client())
    return answers


async def _ask_again(endpoint: Endpoint, request: bytes) -> None:
    """Keep a stream running until the task is cancelled."""
    connection = await connect(endpoint)
    try:
        while True:
            await connection.ask(request)
    finally:
        connection.close()


async def _ask(
    endpoint: Endpoint, connection: Connection, request: bytes, answers: _Answers
) -> Connection:
    """Returns the connection for the next request."""
    try:
        async with asyncio.timeout(_ANSWER_TIMEOUT_S):
            await connection.ask(request)
        if connection.status in (429, 503):
            answers.num_refused += 1
        else:
            answers.streams.append(read_stream(connection.started_s, connection.arrivals))
        return connection
    except (BadResponse, OSError, TimeoutError):
        answers.num_failed += 1
        connection.close()
        return await connect(endpoint)


def _chat(endpoint: Endpoint, prompt: Prompt, max_tokens: int = MAX_TOKENS) -> bytes:
    content = streamed(TINY_CHAT, max_tokens, messages=prompt.messages)
    return endpoint.post("/v1/chat/completions", content)


def _completion(
    endpoint: Endpoint, number: int, num_prompt_tokens: int, max_tokens: int = MAX_TOKENS
) -> bytes:
    ids = np.random.default_rng(number).integers(300, 2900, num_prompt_tokens).tolist()
    content = streamed(TINY_CHAT, max_tokens, prompt=ids, ignore_eos=True)
    return endpoint.post("/v1/completions", content)


def _web_peak_mb(endpoint: Endpoint) -> float:
    peaks = [_peak_mb(each) for each in listeners(endpoint.address[1])]
    return max(peaks, default=0.0)


def _peak_mb(process: psutil.Process) -> float:
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    kib = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(kib) * 1024 / 1e6


_COLUMNS: Final = (
    *("clients", "requests", "refused", "failed", "tok/s server/bare", "ratio"),
    *("first token ms p50/p99", "slowest s", "web peak MB"),
)


def table(result: CrowdsResult) -> list[tuple[str, ...]]:
    """The rows of the crowds, their heads first."""
    return [_COLUMNS, *map(_row, result.crowds)]


def neighbour_lines(result: CrowdsResult) -> Iterator[str]:
    first = result.neighbours[0] if result.neighbours else None
    for each in result.neighbours:
        ratio = each.first_token_p50_ms / first.first_token_p50_ms if first else 0.0
        yield (
            f"first token of another key beside {each.beside}: {each.first_token_p50_ms:.0f} ms, "
            f"p99 {each.first_token_p99_ms:.0f} ms, {ratio:.2f} times, {each.num_refused} refused"
        )


def _row(crowd: Crowd) -> tuple[str, ...]:
    return (
        str(crowd.num_clients),
        str(crowd.num_requests),
        str(crowd.num_refused),
        str(crowd.num_failed),
        f"{crowd.tokens_per_s:.0f} / {crowd.bare_tokens_per_s:.0f}",
        f"{crowd.tokens_per_s / crowd.bare_tokens_per_s:.3f}",
        f"{crowd.first_token_p50_ms:.0f} / {crowd.first_token_p99_ms:.0f}",
        f"{crowd.slowest_ms / 1e3:.1f}",
        f"{crowd.web_peak_mb:.0f}",
    )
