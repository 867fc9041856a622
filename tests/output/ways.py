"""All ways in which families write calls, with arguments as values, and what is read back."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from serving.core.request import Tool

from . import families, other_families
from .builders import Folded, a_parser, folded
from .other_families import AMONG_TEXT, AS_MESSAGES, Call

_ANYTHING: dict[str, Any] = {}
TOOLS = [
    Tool(
        "get_weather",
        None,
        {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "at": {"type": "array"},
                "more": {"type": "object"},
                "is_hot": {"type": "boolean"},
                "any": _ANYTHING,
            },
        },
    ),
    Tool("get_time", None, {"type": "object", "properties": {"zone": {"type": "number"}}}),
    Tool("ping"),
]
PARIS: Call = ("get_weather", {"city": "Paris"})
NOON: Call = ("get_time", {"zone": 1.5})
PING: Call = ("ping", {})


def _with_json(write: Callable[[Sequence[families.Call]], str]) -> Callable[[Sequence[Call]], str]:
    def written(calls: Sequence[Call]) -> str:
        return write([(name, json.dumps(args, ensure_ascii=False)) for name, args in calls])

    return written


# The format that reads it, and how it is written.
WRITERS = {
    **{way: (name, _with_json(write)) for way, (name, write) in families.WRITERS.items()},
    **other_families.WRITERS,
}
# A test for every way; for those in which text may stand around calls; and for the others.
ways = pytest.mark.parametrize("way", WRITERS)
among_text = pytest.mark.parametrize("way", [*families.WRITERS, *AMONG_TEXT])
as_messages = pytest.mark.parametrize("way", AS_MESSAGES)


def written(way: str, calls: Sequence[Call]) -> str:
    return WRITERS[way][1](calls)


def read(way: str, parts: str | Sequence[str]) -> Folded:
    parser = a_parser(WRITERS[way][0], tools=TOOLS)
    return folded(parser, [parts] if isinstance(parts, str) else parts)


def calls_in(read: Folded) -> list[Any]:
    """What was read, with the arguments as values."""
    return [
        (kind, text if kind in ("text", "reasoning") else json.loads(text)) for kind, text in read
    ]
