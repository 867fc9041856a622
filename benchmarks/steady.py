"""`python -m benchmarks.steady`: whether memory, descriptors and files stay flat under mixed load.

The benchmark starts its own platform and serves three models. Clients send requests of all kinds,
also bad ones and ones whose client leaves, for two hours or as long as `--minutes` says. Samples of
each role's processes and of the home folder are compared: the median of the second quarter of the
time with the median of the last quarter. Ends with 1 when an answer had another status than its
kind expects, when a figure grew too much, or when the ledger does not balance.

OpenVINO keeps the kernels of each number of tokens that a step has had (docs/guides/sizing.md): for
tiny-chat 1.4 MB, for up to 256 numbers. Prompts of each length come first, so that growth during
the load is a leak.
"""

import argparse
import asyncio
import base64
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

import httpx
import psutil

from benchmarks.machine import REPOSITORY, markdown, show
from benchmarks.platform_under_test import (
    OwnPlatform,
    PlatformFailed,
    own_platform,
    wait_until_it_answers,
)
from benchmarks.settings import TINY_CHAT
from tests.media.containers import png
from vinery_serving.engine.config import ENGINE_MODULE

_MODELS: Final = ("tiny-vision", "tiny-embed")  # beside tiny-chat, which each platform has
_TIMEOUT_S: Final = 120.0
_MAX_TRIES: Final = 600  # while a model loads
_PAUSE_S: Final = 0.5  # at most, between two requests of a client
_STEP_TOKENS: Final = 256  # of a model without max_num_batched_tokens
_ROLES: Final = {
    ENGINE_MODULE: "engine",
    "vinery_serving.gateway.workers.worker": "fork server and workers",
    "web": "web",
    "node": "node",
    "jobs": "jobs",
    "up": "supervisor",
}
# How much a median may grow between the quarters: a part of it, and an amount that always may.
_MAX_GROWTH: Final = 0.05
_ALLOWED: Final = {"memory MB": 12.0, "descriptors": 4.0, "processes": 2.0, "files": 8.0}


@dataclass(frozen=True)
class Request:
    """A request, and the status that its answer has. A client that leaves reads one line."""

    body: Mapping[str, Any]
    path: str = "/v1/chat/completions"
    status: int = 200
    leaves: bool = False


def _chat(text: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"model": TINY_CHAT, "messages": messages, "max_tokens": 32, **more}


def _words(dice: random.Random, num_words: int) -> str:
    return " ".join(str(dice.randrange(1000)) for _ in range(num_words))


def _with_schema(dice: random.Random) -> dict[str, Any]:
    """Each schema is new, so no cache has its grammar."""
    fields = {f"f{dice.randrange(10**6)}": {"type": "integer"} for _ in range(3)}
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    form = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema, "strict": True}}
    return _chat("Three numbers.", response_format=form)


def _with_picture(dice: random.Random, begin: bytes) -> dict[str, Any]:
    side = dice.randrange(16, 64)
    picture = begin + png(side, side, rows=(b"\0" + dice.randbytes(3 * side)) * side)[len(begin) :]
    url = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
    parts = [
        {"type": "text", "text": "Which colour?"},
        {"type": "image_url", "image_url": {"url": url}},
    ]
    messages = [{"role": "user", "content": parts}]
    return {"model": "tiny-vision", "messages": messages, "max_tokens": 8}


def _requests(dice: random.Random) -> dict[str, Request]:
    """One of each kind."""
    count, words = f"Count to {dice.randrange(2, 60)}.", _words(dice, 20)
    asked = {"model": TINY_CHAT, "prompt": words, "max_tokens": 16}
    response = {"model": TINY_CHAT, "input": words, "max_output_tokens": 16}
    texts = {"model": "tiny-embed", "input": [_words(dice, 8) for _ in range(8)]}
    unknown = f"none-{dice.randrange(10**6)}"
    return {
        "chat": Request(_chat(count)),
        "stream": Request(_chat(f"Count: {_words(dice, 3)}.", stream=True)),
        "left early": Request(_chat("Count to 60.", stream=True, max_tokens=200), leaves=True),
        "long prompt": Request(_chat(_words(dice, 400), max_tokens=4)),
        "schema": Request(_with_schema(dice)),
        "picture": Request(_with_picture(dice, b"")),
        "bad picture": Request(_with_picture(dice, b"no"), status=400),
        "bad value": Request(_chat("Hi", temperature=dice.randrange(3, 9)), status=400),
        "no such model": Request(_chat("Hi", model=unknown), status=404),
        "messages": Request(_chat(words, stream=True), "/v1/messages"),
        "responses": Request(response, "/v1/responses"),
        "completions": Request(asked, "/v1/completions"),
        "embeddings": Request(texts, "/v1/embeddings"),
    }


_KINDS: Final = tuple(_requests(random.Random()))


@dataclass
class Outcome:
    """What clients saw, and the samples: figure → values in order of time."""

    answers: Counter[str] = field(default_factory=Counter)
    unexpected: Counter[str] = field(default_factory=Counter)
    samples: dict[tuple[str, str], list[float]] = field(default_factory=dict)


def main() -> int:
    arguments = _parser().parse_args()
    with own_platform() as platform:
        wait_until_it_answers(platform.endpoint, TINY_CHAT)
        for name in _MODELS:
            platform.run("model", "add", str(REPOSITORY / "models" / name), "--name", name)
        outcome = asyncio.run(_load(platform, arguments))
        ledger = platform.verified_usage()
    has_grown = _report(outcome)
    print(f"\n{ledger}")
    return 1 if has_grown or outcome.unexpected else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=120.0, help="of load")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--sample-s", type=float, default=15.0, help="seconds between samples")
    parser.add_argument("--seed", type=int, default=1)
    help_text = "a kind to leave out, such as `schema`: GenAI keeps each compiled grammar"
    parser.add_argument("--without", choices=_KINDS, action="append", default=[], help=help_text)
    return parser


async def _load(platform: OwnPlatform, arguments: argparse.Namespace) -> Outcome:
    outcome = Outcome()
    async with (
        httpx.AsyncClient(
            base_url=platform.endpoint.base_url,
            headers=platform.endpoint.headers,
            timeout=_TIMEOUT_S,
        ) as http,
        asyncio.TaskGroup() as tasks,
    ):
        for name in ("picture", "embeddings"):  # of the models that are loading
            await _wait_until_served(http, name)
        for num_tokens in range(1, _STEP_TOKENS + 1):
            dice = random.Random(num_tokens)
            ids = [dice.randrange(300, 2900) for _ in range(num_tokens)]
            body = {"model": TINY_CHAT, "prompt": ids, "max_tokens": 1}
            await _answer(http, Request(body, "/v1/completions"))
        ends_at_s = time.monotonic() + 60 * arguments.minutes
        for number in range(arguments.clients):
            dice = random.Random(arguments.seed * 1000 + number)
            kinds = [name for name in _KINDS if name not in arguments.without]
            tasks.create_task(_client(http, dice, kinds, ends_at_s, outcome))
        while time.monotonic() < ends_at_s:
            await asyncio.sleep(min(arguments.sample_s, max(ends_at_s - time.monotonic(), 0)))
            for figure, value in _sample(platform).items():
                outcome.samples.setdefault(figure, []).append(value)
            show(f"{sum(outcome.answers.values())} answers, unexpected: {dict(outcome.unexpected)}")
    return outcome


async def _wait_until_served(http: httpx.AsyncClient, name: str) -> None:
    for _ in range(_MAX_TRIES):
        if await _answer(http, _requests(random.Random())[name]) == "200":
            return
        await asyncio.sleep(_PAUSE_S)
    raise PlatformFailed(f"{name}: no answer")


async def _client(
    http: httpx.AsyncClient,
    dice: random.Random,
    kinds: Sequence[str],
    ends_at_s: float,
    outcome: Outcome,
) -> None:
    while time.monotonic() < ends_at_s:
        name = dice.choice(kinds)
        request = _requests(dice)[name]
        seen = await _answer(http, request)
        outcome.answers[name] += 1
        if seen != str(request.status):
            outcome.unexpected[f"{name}: {seen}"] += 1
        await asyncio.sleep(dice.random() * _PAUSE_S)


async def _answer(http: httpx.AsyncClient, request: Request) -> str:
    """Return the status, or what went wrong."""
    try:
        async with http.stream("POST", request.path, json=request.body) as response:
            async for line in response.aiter_lines():
                if request.leaves:
                    break
                if line.startswith('data: {"error"'):
                    return line
        return str(response.status_code)
    except httpx.HTTPError as error:
        return type(error).__name__


def _sample(platform: OwnPlatform) -> dict[tuple[str, str], float]:
    figures: defaultdict[tuple[str, str], float] = defaultdict(float)
    for process, words in platform.processes():
        if (mark := next((mark for mark in _ROLES if mark in words), None)) is None:
            continue
        # The next argument of an engine is the model.
        role = f"engine {words[words.index(mark) + 1]}" if mark == ENGINE_MODULE else _ROLES[mark]
        with suppress(psutil.Error):  # it ended meanwhile
            memory, num_fds = process.memory_full_info().pss / 2**20, process.num_fds()
            for what, value in zip(_ALLOWED, (memory, num_fds, 1), strict=False):
                figures[role, what] += value
    files = [each for each in platform.home.rglob("*") if each.is_file()]
    return {**figures, ("home", "files"): len(files)}


def _report(outcome: Outcome) -> bool:
    """Print the tables. Returns whether a figure grew too much."""
    print("\n".join(markdown(("request", "answers"), *sorted(outcome.answers.items()))))
    print(f"\nunexpected: {dict(outcome.unexpected) or 'none'}\n")
    rows, has_grown = [], False
    for (role, what), values in sorted(outcome.samples.items()):
        length = max(len(values) // 4, 1)
        quarters = [
            median(values[start:][:length] or values) for start in range(0, 4 * length, length)
        ]
        early, late = quarters[1], quarters[3]
        grew = late - early > max(_MAX_GROWTH * early, _ALLOWED[what])
        has_grown |= grew
        shown = ", ".join(f"{each:.0f}" for each in quarters) + " **grew**" * grew
        rows.append((role, what, shown, f"{max(values):.0f}"))
    print("\n".join(markdown(("process", "figure", "by quarter", "highest"), *rows)))
    return has_grown


if __name__ == "__main__":
    sys.exit(main())
