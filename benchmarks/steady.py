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
import json
import os
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

import httpx
import psutil

from benchmarks.kills import wait_until_balanced
from benchmarks.machine import REPOSITORY, show
from benchmarks.platform_under_test import (
    OwnPlatform,
    PlatformFailed,
    own_platform,
    wait_until_it_answers,
)
from tests.media.containers import png

_MODELS: Final = ("tiny-vision", "tiny-embed")  # beside tiny-chat, which each platform has
_TIMEOUT_S: Final = 120.0
_MAX_TRIES: Final = 600  # while a model loads
_PAUSE_S: Final = 0.5  # at most, between two requests of a client
_STEP_TOKENS: Final = 256  # of a model without max_num_batched_tokens
_ENGINE: Final = "vinery_serving.engine"
_ROLES: Final = {
    _ENGINE: "engine",
    "vinery_serving.gateway.workers.fork_server": "fork server and workers",
    "web": "web",
    "node": "node",
    "jobs": "jobs",
    "up": "supervisor",
}
# How much a median may grow between the quarters: a part of it, and an amount that always may.
_MAX_GROWTH: Final = 0.05
_ALLOWED: Final = {"memory MB": 12.0, "descriptors": 4.0, "processes": 2.0, "files": 8.0}

Body = Callable[[random.Random], dict[str, Any]]


@dataclass(frozen=True)
class Kind:
    """A request, and the status that its answer has. A client that leaves reads one line."""

    path: str
    body: Body
    status: int = 200
    leaves: bool = False


def _chat(text: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"model": "tiny-chat", "messages": messages, "max_tokens": 32, **more}


def _words(dice: random.Random, num_words: int) -> str:
    return " ".join(str(dice.randrange(1000)) for _ in range(num_words))


def _with_schema(dice: random.Random) -> dict[str, Any]:
    """Each schema is new, so no cache has its grammar."""
    fields = {f"f{dice.randrange(10**6)}": {"type": "integer"} for _ in range(3)}
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    form = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema, "strict": True}}
    return _chat("Three numbers.", response_format=form)


def _with_tokens(num_tokens: int) -> Kind:
    def body(dice: random.Random) -> dict[str, Any]:
        ids = [dice.randrange(300, 2900) for _ in range(num_tokens)]
        return {"model": "tiny-chat", "prompt": ids, "max_tokens": 1}

    return Kind("/v1/completions", body)


def _with_picture(dice: random.Random) -> dict[str, Any]:
    side = dice.randrange(16, 64)
    picture = png(side, side, rows=(b"\0" + dice.randbytes(3 * side)) * side)
    url = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
    parts = [
        {"type": "text", "text": "Which colour?"},
        {"type": "image_url", "image_url": {"url": url}},
    ]
    messages = [{"role": "user", "content": parts}]
    return {"model": "tiny-vision", "messages": messages, "max_tokens": 8}


_CHAT_PATH: Final = "/v1/chat/completions"
_KINDS: Final = {
    "chat": Kind(_CHAT_PATH, lambda dice: _chat(f"Count to {dice.randrange(2, 60)}.")),
    "stream": Kind(_CHAT_PATH, lambda dice: _chat(f"Count: {_words(dice, 3)}.", stream=True)),
    "left early": Kind(
        _CHAT_PATH, lambda dice: _chat("Count to 60.", stream=True, max_tokens=200), leaves=True
    ),
    "long prompt": Kind(_CHAT_PATH, lambda dice: _chat(_words(dice, 400), max_tokens=4)),
    "schema": Kind(_CHAT_PATH, _with_schema),
    "picture": Kind(_CHAT_PATH, _with_picture),
    "bad picture": Kind(
        _CHAT_PATH,
        lambda dice: json.loads(json.dumps(_with_picture(dice)).replace("iVBORw0", "iVBORw1")),
        400,
    ),
    "bad value": Kind(_CHAT_PATH, lambda dice: _chat("Hi", temperature=dice.randrange(3, 9)), 400),
    "no such model": Kind(
        _CHAT_PATH, lambda dice: _chat("Hi", model=f"none-{dice.randrange(10**6)}"), 404
    ),
    "messages": Kind("/v1/messages", lambda dice: _chat(_words(dice, 20), stream=True)),
    "responses": Kind(
        "/v1/responses",
        lambda dice: {"model": "tiny-chat", "input": _words(dice, 20), "max_output_tokens": 16},
    ),
    "completions": Kind(
        "/v1/completions",
        lambda dice: {"model": "tiny-chat", "prompt": _words(dice, 10), "max_tokens": 16},
    ),
    "embeddings": Kind(
        "/v1/embeddings",
        lambda dice: {"model": "tiny-embed", "input": [_words(dice, 8) for _ in range(8)]},
    ),
}


@dataclass
class Outcome:
    """What clients saw, and the samples: figure → values in order of time."""

    answers: Counter[str] = field(default_factory=Counter)
    unexpected: Counter[str] = field(default_factory=Counter)
    samples: dict[tuple[str, str], list[float]] = field(default_factory=dict)


def main() -> int:
    arguments = _parser().parse_args()
    with own_platform() as platform:
        wait_until_it_answers(platform.endpoint, "tiny-chat")
        for name in _MODELS:
            platform.run("model", "add", str(REPOSITORY / "models" / name), "--name", name)
        outcome = asyncio.run(_load(platform, arguments))
        wait_until_balanced(platform)
        ledger = platform.run("usage", "verify")
    has_grown = _report(outcome)
    print(f"\nusage verify: {ledger.strip()}")
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
            headers={"authorization": f"Bearer {platform.endpoint.api_key}"},
            timeout=_TIMEOUT_S,
        ) as http,
        asyncio.TaskGroup() as tasks,
    ):
        for name in ("picture", "embeddings"):  # of the models that are loading
            await _wait_until_served(http, name)
        for num_tokens in range(1, _STEP_TOKENS + 1):
            await _answer(http, _with_tokens(num_tokens), random.Random(num_tokens))
        ends_at_s = time.monotonic() + 60 * arguments.minutes
        for number in range(arguments.clients):
            dice = random.Random(arguments.seed * 1000 + number)
            kinds = [name for name in _KINDS if name not in arguments.without]
            tasks.create_task(_client(http, dice, kinds, ends_at_s, outcome))
        while time.monotonic() < ends_at_s:
            await asyncio.sleep(min(arguments.sample_s, max(ends_at_s - time.monotonic(), 0)))
            for figure, value in _sample(platform.home).items():
                outcome.samples.setdefault(figure, []).append(value)
            show(f"{sum(outcome.answers.values())} answers, unexpected: {dict(outcome.unexpected)}")
    return outcome


async def _wait_until_served(http: httpx.AsyncClient, name: str) -> None:
    for _ in range(_MAX_TRIES):
        if await _answer(http, _KINDS[name], random.Random()) == "200":
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
        seen = await _answer(http, _KINDS[name], dice)
        outcome.answers[name] += 1
        if seen != str(_KINDS[name].status):
            outcome.unexpected[f"{name}: {seen}"] += 1
        await asyncio.sleep(dice.random() * _PAUSE_S)


async def _answer(http: httpx.AsyncClient, kind: Kind, dice: random.Random) -> str:
    """Return the status, or what went wrong."""
    try:
        async with http.stream("POST", kind.path, json=kind.body(dice)) as response:
            async for line in response.aiter_lines():
                if kind.leaves:
                    break
                if line.startswith('data: {"error"'):
                    return line
        return str(response.status_code)
    except httpx.HTTPError as error:
        return type(error).__name__


def _sample(home: Path) -> dict[tuple[str, str], float]:
    figures: defaultdict[tuple[str, str], float] = defaultdict(float)
    for role, process in _processes(home):
        try:
            memory = process.memory_full_info().pss / 2**20
            num_fds = process.num_fds()
        except psutil.Error:  # it ended meanwhile
            continue
        figures[role, "memory MB"] += memory
        figures[role, "descriptors"] += num_fds
        figures[role, "processes"] += 1
    files = [each for each in home.rglob("*") if each.is_file()]
    return {**figures, ("home", "files"): len(files)}


def _processes(home: Path) -> Iterator[tuple[str, psutil.Process]]:
    """The platform's processes with their roles: the children of the supervisor of the home, and
    engines that outlived a node."""
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            mark = next((mark for mark in _ROLES if mark in words), None)
            if mark is not None and _belongs_to(process, home):
                is_engine = mark == _ENGINE  # whose next argument is the model
                yield (
                    f"engine {words[words.index(mark) + 1]}" if is_engine else _ROLES[mark],
                    process,
                )
        except psutil.Error:
            continue


def _belongs_to(process: psutil.Process, home: Path) -> bool:
    """Worker processes have no environment of the server: their parents tell."""
    lines = [process, *process.parents()]
    return any(os.fspath(home) in each.environ().get("VINERY_HOME", "") for each in lines[:-1])


def _report(outcome: Outcome) -> bool:
    """Print the tables. Returns whether a figure grew too much."""
    print("| request | answers |\n| --- | --- |")
    for name, num in sorted(outcome.answers.items()):
        print(f"| {name} | {num} |")
    print(f"\nunexpected: {dict(outcome.unexpected) or 'none'}\n")
    print("| process | figure | by quarter | highest |\n| - | - | - | - |")
    has_grown = False
    for (role, what), values in sorted(outcome.samples.items()):
        length = max(len(values) // 4, 1)
        quarters = [
            median(values[start:][:length] or values) for start in range(0, 4 * length, length)
        ]
        early, late = quarters[1], quarters[3]
        grew = late - early > max(_MAX_GROWTH * early, _ALLOWED[what])
        has_grown |= grew
        mark = " **grew**" if grew else ""
        shown = ", ".join(f"{each:.0f}" for each in quarters)
        print(f"| {role} | {what} | {shown}{mark} | {max(values):.0f} |")
    return has_grown


if __name__ == "__main__":
    sys.exit(main())
