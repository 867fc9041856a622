"""Tools with parameters of every type, and what a family reads in their calls."""

from __future__ import annotations

from vinery_serving.core.request import Tool

from .builders import Folded, a_parser, folded

TOOLS = [
    Tool(
        "f",
        None,
        {
            "type": "object",
            "properties": {
                "text": {"type": "string"},
                "count": {"type": "integer"},
                "share": {"type": "number"},
                "is_on": {"type": "boolean"},
                "items": {"type": "array"},
                "more": {"type": "object"},
                "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "size": {"$ref": "#/$defs/size"},
                "any": {},
            },
            "$defs": {"size": {"type": ["integer", "string"]}},
        },
    ),
    Tool("ping"),
]


def read(
    name: str,
    text: str,
    *,
    tools: list[Tool] = TOOLS,
    opens: bool = False,
    is_whole: bool = False,
) -> Folded:
    """What is read in a text: in one part, character by character, and in any two parts.
    `is_whole`: the model has ended it; otherwise it may be cut."""

    def read_parts(*parts: str) -> Folded:
        parser = a_parser(name, tools=tools, opens_reasoning=opens)
        return folded(parser, parts, is_whole=is_whole)

    whole = read_parts(text)
    assert read_parts(*text) == whole
    for at in range(1, len(text)):
        assert read_parts(text[:at], text[at:]) == whole
    return whole
