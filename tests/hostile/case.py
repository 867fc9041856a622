"""A hostile request: the bytes to send, and the right answers.

A body is made for a size in bytes. A refusal must name the field at fault.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

MODEL: Final = "tiny-chat"
CHAT: Final = "/v1/chat/completions"
COMPLETIONS: Final = "/v1/completions"
RESPONSES: Final = "/v1/responses"
INPUT_TOKENS: Final = "/v1/responses/input_tokens"
MESSAGES: Final = "/v1/messages"
COUNT_TOKENS: Final = "/v1/messages/count_tokens"
TOKENIZE: Final = "/v1/tokenize"
DETOKENIZE: Final = "/v1/detokenize"

# The place of a JSON text that no Python value has: too deep, twice, not UTF-8.
HOLE: Final = "@hole@"
_HOLE_TEXT: Final = json.dumps(HOLE)

# An answer, or a refusal that the client can act on.
REFUSALS: Final = frozenset((400, 404, 409, 413, 414, 415, 422, 429, 431))
ANSWERED: Final = frozenset((200, *REFUSALS))
# Errors without a field: the body is not JSON at all, is too large, or is longer than the context.
# Errors in Anthropic's form have no code, only the words.
WITHOUT_FIELD: Final[Mapping[str, str]] = {
    "invalid_json": "The request body cannot be read",
    "context_length_exceeded": "prompt is too long",
}
# The paths whose errors have Anthropic's form.
IN_ANTHROPICS_FORM: Final = (MESSAGES, COUNT_TOKENS)

# A valid, short request to each endpoint with a body.
BODIES: Final[Mapping[str, Mapping[str, Any]]] = {
    CHAT: {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1},
    COMPLETIONS: {"model": MODEL, "prompt": "Hi", "max_tokens": 1},
    RESPONSES: {"model": MODEL, "input": "Hi", "max_output_tokens": 1},
    INPUT_TOKENS: {"model": MODEL, "input": "Hi"},
    MESSAGES: {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1},
    COUNT_TOKENS: {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]},
    TOKENIZE: {"model": MODEL, "prompt": "Hi"},
    DETOKENIZE: {"model": MODEL, "tokens": [1]},
}


Body = Callable[[int], bytes]


@dataclass(frozen=True)
class Case:
    """A hostile request. `size` is the rough size of the body in bytes; `param` the field that a
    refusal names, or None where no field can be named."""

    name: str
    kind: str
    path: str
    body: Body = field(repr=False)
    param: str | None = None
    size: int = 0
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)
    statuses: Collection[int] = ANSWERED


def constant(value: object) -> Body:
    """A body of one size."""
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    return lambda size: content


def filled(contents: Mapping[str, Any], text: Callable[[int], str]) -> Body:
    """The body `contents`, in which the JSON `text` of a size replaces the hole."""
    before, _, after = json.dumps(contents).partition(_HOLE_TEXT)

    def body(size: int) -> bytes:
        return (before + text(size) + after).encode("utf-8", "surrogateescape")

    return body


def with_fields(path: str, **fields: Any) -> dict[str, Any]:
    """A valid body of an endpoint with other fields. None removes one."""
    body = {**BODIES[path], **fields}
    return {name: value for name, value in body.items() if value is not None}


def num_of(size: int, each: int) -> int:
    """How many entries of `each` bytes have a size."""
    return max(1, size // each)
