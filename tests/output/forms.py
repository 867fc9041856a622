"""Tools with parameters of every type, and readers of calls."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.tables import table
from vinery_serving.core.request import Tool

from .builders import Folded, a_parser, folded, object_of

Expected = Sequence[tuple[str, Any]]  # arguments as their text, or as an object
Rows = Mapping[str, tuple[str, str, Expected]]  # by a sentence

_PARAMETERS = object_of(
    [],
    text={"type": "string"},
    count={"type": "integer"},
    share={"type": "number"},
    is_on={"type": "boolean"},
    items={"type": "array"},
    more={"type": "object"},
    maybe={"anyOf": [{"type": "string"}, {"type": "null"}]},
    size={"$ref": "#/$defs/size"},
    any={},
)
_SIZE = {"size": {"type": ["integer", "string"]}}
TOOLS = [Tool("f", None, _PARAMETERS | {"$defs": _SIZE}), Tool("ping")]
PING = ("ping", "{}")
COUNT = ("f", '{"count": 1}')


def row(name: str, text: str, expected: Expected) -> tuple[str, str, Expected]:
    return name, text, expected


def rows(of: Rows) -> Any:
    return table("name, text, expected", [pytest.param(*row, id=key) for key, row in of.items()])


def read(
    name: str,
    text: str,
    *,
    tools: Sequence[Tool] = TOOLS,
    opens: bool = False,
    is_whole: bool = False,
) -> Folded:
    """Read a text in one part, character by character, and in any two parts. `is_whole`: the model
    has ended the text; otherwise it may be cut."""

    def read_parts(*parts: str) -> Folded:
        parser = a_parser(name, tools=tools, opens_reasoning=opens)
        return folded(parser, parts, is_whole=is_whole)

    whole = read_parts(text)
    assert read_parts(*text) == whole
    for at in range(1, len(text)):
        assert read_parts(text[:at], text[at:]) == whole
    return whole


def check(found: Folded, expected: Expected) -> None:
    as_expected = [
        (kind, json.loads(text) if isinstance(value, dict) else text)
        for (kind, text), (_, value) in zip(found, expected, strict=False)
    ]
    assert len(found) == len(expected), found
    assert as_expected == list(expected)
