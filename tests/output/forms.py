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


def read(name: str, text: str, *, tools: list[Tool] = TOOLS, opens: bool = False) -> Folded:
    """What is read in a text, whole and character by character."""
    whole = folded(a_parser(name, tools=tools, opens_reasoning=opens), [text])
    assert folded(a_parser(name, tools=tools, opens_reasoning=opens), list(text)) == whole
    return whole
