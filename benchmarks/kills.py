"""`python -m benchmarks.kills`: what 16 streams notice of a process that is killed or stopped.

The benchmark starts its own platform. In each trial 16 clients stream the same greedy answer, or
with `--mixed` answers of many kinds; when half of the text has been sent, a process gets SIGKILL or
SIGSTOP. The table has what the clients saw: each answer is compared with an undisturbed answer. At
the end `vinery usage verify` compares the ledger with its sources, and the ledger's tokens are
compared with the tokens that clients read. Ends with 1 when an answer that should survive did not.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from benchmarks.machine import markdown, show
from benchmarks.platform_under_test import OwnPlatform, own_platform, wait_until_it_answers

_NUM_STREAMS: Final = 16
_SIGNALS: Final = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}
_MARKS: Final = {
    "engine": ("vinery_serving.engine",),
    "node": ("vinery_platform.cli", "node"),
    "jobs": ("vinery_platform.cli", "jobs"),
    "web": ("vinery_platform.cli", "web"),
}
_REQUEST: Final[dict[str, Any]] = {
    "model": "tiny-chat",
    "messages": [{"role": "user", "content": "Count to 60."}],
    "stream": True,
    "stream_options": {"include_usage": True},
}
# Answers that depend on more than the tokens before. Their text must not change either.
_KINDS: Final[dict[str, dict[str, Any]]] = {
    "greedy": {},
    "seed": {"temperature": 0.9, "seed": 7},
    "penalties": {"frequency_penalty": 0.3, "presence_penalty": 0.2},
    "repetition penalty": {"repetition_penalty": 1.1},
    "regular expression": {"guided_regex": "([0-9]{1,2} ){40}x"},
    "log-probabilities": {"logprobs": True, "top_logprobs": 2},
    "two choices": {"n": 2, "temperature": 0.9, "seed": 3},
    "bias": {"logit_bias": {"20": 1}},
}
_TIMEOUT_S: Final = 60.0
_BACK_WITHIN_S: Final = 30.0
# How a stream ended, from best to worst.
_SAME, _OTHER, _ERROR = "same text", "other text", "error event"
_BROKEN, _REFUSED = "connection broken", "refused"


@dataclass
class Answer:
    """What a client has seen."""

    texts: dict[int, str] = field(default_factory=dict)  # by choice
    num_tokens: int | None = None  # None: the usage was not sent
    longest_gap_s: float = 0.0
    end: str = _BROKEN

    @property
    def num_chars(self) -> int:
        return sum(map(len, self.texts.values()))


@dataclass
class Row:
    """All trials with one role and signal."""

    role: str
    what: str
    ends: Counter[str] = field(default_factory=Counter)
    gaps_s: list[float] = field(default_factory=list)
    num_wrong_usage: int = 0

    @property
    def must_survive(self) -> bool:
        """A web process holds the connections of its clients."""
        return self.role != "web"


def main() -> int:
    arguments = _parser().parse_args()
    with own_platform() as platform:
        wait_until_it_answers(platform.endpoint, "tiny-chat")
        kinds = list(_KINDS) if arguments.mixed else ["greedy"]
        rows = asyncio.run(_run(platform, arguments, kinds))
        ledger = platform.verified_usage()
    heads = ("process", "what", "streams", "what clients saw", "longest gap p50, max (s)")
    print("\n".join(markdown((*heads, "wrong usage"), *(list(_cells(each)) for each in rows))))
    print(f"\n{ledger}")
    has_failed = any(row.must_survive and set(row.ends) != {_SAME} for row in rows)
    return 1 if has_failed or any(row.num_wrong_usage for row in rows) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trials", type=int, default=50, help="of each role and signal")
    parser.add_argument("--roles", nargs="+", default=list(_MARKS), choices=list(_MARKS))
    parser.add_argument("--what", nargs="+", default=list(_SIGNALS), choices=list(_SIGNALS))
    parser.add_argument("--mixed", action="store_true", help="stream answers of many kinds")
    return parser


async def _run(
    platform: OwnPlatform, arguments: argparse.Namespace, kinds: Sequence[str]
) -> list[Row]:
    rows = []
    async with httpx.AsyncClient(
        base_url=platform.endpoint.base_url,
        headers=platform.endpoint.headers,
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
        timeout=_TIMEOUT_S,
    ) as http:
        undisturbed = {kind: await _answer(http, kind) for kind in kinds}
        for role in arguments.roles:
            for what in arguments.what:
                row = Row(role, what)
                rows.append(row)
                for number in range(arguments.trials):
                    await _trial(http, platform, row, undisturbed)
                    show(f"{role} {what} {number + 1}/{arguments.trials}: {dict(row.ends)}")
    return rows


class Progress:
    """How many characters all clients of a trial have received."""

    def __init__(self, half: int) -> None:
        self._missing = half
        self.is_half = asyncio.Event()

    def add(self, num_chars: int) -> None:
        self._missing -= num_chars
        if self._missing <= 0:
            self.is_half.set()


async def _trial(
    http: httpx.AsyncClient, platform: OwnPlatform, row: Row, undisturbed: Mapping[str, Answer]
) -> None:
    victims = _pids(platform, row.role)
    kinds = list(itertools.islice(itertools.cycle(undisturbed), _NUM_STREAMS))
    progress = Progress(sum(undisturbed[kind].num_chars for kind in kinds) // 2)
    streams = [asyncio.create_task(_answer(http, kind, progress)) for kind in kinds]
    await progress.is_half.wait()
    for pid in victims:
        os.kill(pid, _SIGNALS[row.what])
    for kind, answer in zip(kinds, await asyncio.gather(*streams), strict=True):
        if answer.end == _SAME and answer.texts != undisturbed[kind].texts:
            answer.end = f"{_OTHER} ({kind})"
        row.ends[answer.end] += 1
        row.gaps_s.append(answer.longest_gap_s)
        is_complete = answer.end == _SAME
        row.num_wrong_usage += is_complete and answer.num_tokens != undisturbed[kind].num_tokens
    await _wait_until_replaced(http, platform, row.role, victims)


async def _answer(
    http: httpx.AsyncClient, kind: str = "greedy", progress: Progress | None = None
) -> Answer:
    answer, body = Answer(), {**_REQUEST, **_KINDS[kind]}
    last_at = time.monotonic()
    try:
        async with http.stream("POST", "/v1/chat/completions", json=body) as response:
            if response.status_code != 200:
                answer.end = f"{_REFUSED} ({response.status_code})"
                return answer
            async for line in response.aiter_lines():
                now = time.monotonic()
                answer.longest_gap_s = max(answer.longest_gap_s, now - last_at)
                last_at = now
                num_chars = _read(line, answer)
                if progress is not None:
                    progress.add(num_chars)
    except httpx.HTTPError:
        pass
    return answer


def _read(line: str, answer: Answer) -> int:
    """Read a line of the stream. Returns how many characters it adds to the text."""
    if line == "data: [DONE]":
        answer.end = _SAME if answer.end == _BROKEN else answer.end
        return 0
    if not line.startswith("data: {"):
        return 0
    event: dict[str, Any] = json.loads(line.removeprefix("data: "))
    if "error" in event:
        answer.end = f"{_ERROR} {event['error']['code']}"
        return 0
    if event.get("usage"):
        answer.num_tokens = event["usage"]["completion_tokens"]
    num_chars = 0
    for choice in event["choices"]:
        text = choice["delta"].get("content") or ""
        answer.texts[choice["index"]] = answer.texts.get(choice["index"], "") + text
        num_chars += len(text)
    return num_chars


def _pids(platform: OwnPlatform, role: str) -> set[int]:
    marks = set(_MARKS[role])
    return {process.pid for process, words in platform.processes() if marks <= set(words)}


async def _wait_until_replaced(
    http: httpx.AsyncClient, platform: OwnPlatform, role: str, old: set[int]
) -> None:
    give_up_at = time.monotonic() + _BACK_WITHIN_S
    while time.monotonic() < give_up_at:
        pids = _pids(platform, role)
        if len(pids) >= len(old) and not pids & old and (await _answer(http)).end == _SAME:
            return
        await asyncio.sleep(0.05)
    raise RuntimeError(f"{role} was not back within {_BACK_WITHIN_S:g} s")


def _cells(row: Row) -> Iterator[object]:
    gaps = sorted(row.gaps_s)
    yield from (row.role, row.what, len(gaps))
    yield ", ".join(f"{end} {num}" for end, num in row.ends.most_common())
    yield from (f"{gaps[len(gaps) // 2]:.2f}, {gaps[-1]:.2f}", row.num_wrong_usage)


if __name__ == "__main__":
    sys.exit(main())
