"""The command line of the benchmark, and its settings after parsing."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.load import Endpoint
from benchmarks.machine import REPOSITORY

TINY_CHAT = "tiny-chat"
HALF_BILLION = "0.5b"
SERVER = "server"
SPECULATION = "speculation"
CROWDS = "crowds"
PARTS = {
    SERVER: "this server beside the bare engine: same model, prompts, lengths, scheduler settings",
    SPECULATION: "greedy text with tokens proposed ahead and without: is it equal, is it quicker",
    CROWDS: "closed loops of up to 256 clients, 1,000 requests at once, and a crowd's neighbour",
}

_DESCRIPTION = (
    "Measure. Progress goes to standard error, tables to standard output, all of it to a JSON file."
)
_EPILOG = "parts:\n" + "\n".join(f"  {name:<12}{what}" for name, what in PARTS.items())


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    streams: tuple[int, ...]
    rounds: int
    tokens: int
    prompt_tokens: int
    first_token_requests: int
    crowd: int
    chats: int


# Of a full run, and by `--quick`.
_STREAMS = (1, 8, 32, 64), (1, 8)
_NUMBERS = {
    "rounds": (3, 1, "runs of each side"),
    "tokens": (128, 32, "output tokens of a stream"),
    "prompt_tokens": (64, 64, "about as many prompt tokens for 0.5b; tiny-chat has 29"),
    "crowd": (1000, 32, "requests at once, at most, in the crowds part"),
    "chats": (30, 5, "of a crowd's neighbour"),
    "first_token_requests": (30, 10, "single requests for the time to first token"),
}
_MODELS_HELP = "of the server part (default: %(default)s)"
_THREADS_HELP = "of each engine; a running server must have as many (default: all cores)"
# By `--quick`: only full runs are worth keeping.
RESULTS = {False: REPOSITORY / "benchmarks" / "results", True: REPOSITORY / "build" / "bench"}


@dataclass(frozen=True)
class Settings:
    """An invocation, after the command line has been read."""

    effort: Effort
    parts: tuple[str, ...]
    models: tuple[str, ...]
    num_threads: int
    server: Endpoint | None  # None: a platform of its own
    cache: Path
    output: Path
    draws: bool

    @property
    def described(self) -> dict[str, object]:
        """For the report: without the key and the folders of this machine."""
        known: dict[str, object] = msgspec.to_builtins(self, enc_hook=str)
        del known["cache"], known["output"]
        return known | {"server": self.server.base_url if self.server else "its own"}


def settings_from(argv: Sequence[str] | None) -> Settings:
    """Read the command line. Raises SystemExit when it asks for the impossible."""
    return _settings(_parser().parse_args(argv))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="other defaults, for a quick look")
    for name, (full, quick, what) in _NUMBERS.items():
        flag, help_text = f"--{name.replace('_', '-')}", f"{what} (default: {full}; quick: {quick})"
        add(flag, type=int, metavar="N", help=help_text)
    add("--streams", type=numbers, metavar="N,N", help="at once (default: 1,8,32,64; quick: 1,8)")
    add("--only", choices=PARTS, help="one part (default: all)")
    add("--models", type=_models, default=f"{TINY_CHAT},{HALF_BILLION}", help=_MODELS_HELP)
    add("--threads", type=int, metavar="N", default=os.cpu_count() or 1, help=_THREADS_HELP)
    add("--server-url", metavar="URL", help="a running server, without /v1; default: start one")
    add("--api-key", default="", metavar="KEY", help="for --server-url")
    add("--cache", type=Path, default=default_cache(), help="of models with random weights")
    add("--output", type=Path, help="folder of the JSON file")
    add("--draw", action="store_true", help="write docs/performance.md, too")
    return parser


def _settings(arguments: argparse.Namespace) -> Settings:
    effort: dict[str, Any] = {name: each[arguments.quick] for name, each in _NUMBERS.items()}
    effort["streams"] = _STREAMS[arguments.quick]
    given = {name: value for name in effort if (value := getattr(arguments, name)) is not None}
    url = arguments.server_url
    return Settings(
        effort=Effort(**{**effort, **given}),
        parts=(arguments.only,) if arguments.only else tuple(PARTS),
        models=arguments.models,
        num_threads=arguments.threads,
        server=Endpoint(url.rstrip("/"), arguments.api_key) if url else None,
        cache=arguments.cache,
        output=arguments.output or RESULTS[arguments.quick],
        draws=arguments.draw,
    )


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def _models(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := set(names) - {TINY_CHAT, HALF_BILLION}:
        raise argparse.ArgumentTypeError(f"{unknown.pop()!r} is not {TINY_CHAT} or {HALF_BILLION}")
    return names


def default_cache() -> Path:
    return Path(os.environ.get("VINERY_HOME", REPOSITORY / "var")) / "cache" / "bench"
