"""Tools with parameters of every type, and what a family reads in their calls."""

from __future__ import annotations

from serving.core.request import Tool

from .builders import Folded, a_parser, folded, pieces_of

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
    """The same for the text as one piece and character by character."""
    whole = folded(pieces_of(a_parser(name, tools=tools, opens_reasoning=opens), [text]))
    by_character = pieces_of(a_parser(name, tools=tools, opens_reasoning=opens), list(text))
    assert folded(by_character) == whole
    return whole
