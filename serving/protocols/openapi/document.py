"""The document around the paths: what it says first, and all the schemas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel

from serving.core.request import Endpoint
from serving.protocols.chat import ChatBody
from serving.protocols.completions import CompletionsBody
from serving.protocols.openapi import answers
from serving.protocols.openapi.meanings import MEANINGS, TOKENIZER_MEANINGS
from serving.protocols.openapi.paths import all_paths
from serving.protocols.openapi.schema import (
    PREFIX,
    Schema,
    add_refused,
    component_schemas,
    describe,
)
from serving.protocols.responses.body import ResponsesBody
from serving.protocols.tokens import DetokenizeBody, TokenizeBody

# The document of one version never changes, so its type may be loose.
Document = dict[str, Any]

BODIES: Final[Mapping[Endpoint, type[BaseModel]]] = {
    Endpoint.CHAT: ChatBody,
    Endpoint.COMPLETIONS: CompletionsBody,
    Endpoint.RESPONSES: ResponsesBody,
}
_TOKENIZER_BODIES: Final = (TokenizeBody, DetokenizeBody)
_ANSWERS: Final = (
    answers.Error,
    answers.Model,
    answers.ModelList,
    answers.Version,
    answers.Tokenized,
    answers.Detokenized,
    answers.TokenizerInfo,
    answers.InputTokens,
    answers.ChatCompletion,
    answers.ChatCompletionChunk,
    answers.Completion,
    answers.Response,
    answers.ResponseEvent,
)

_DESCRIPTION: Final = """\
Vinery serves OpenVINO models to OpenAI's clients, under two URL trees: `/v1` has OpenAI's \
defaults, `/v3` those of OpenVINO Model Server. Where they differ, the field says so. Every \
field may be null, which is the same as absent, and unknown fields are accepted. A field is \
honoured, or refused by name with the reason (`x-refused`).

Limits: a body of {max_body_mb} MB, 100 levels of JSON, 128 answers to one prompt and 2048 to \
one request. A model has its own: its context, and what its administrator sets.

This document needs no key."""

_WHY: Final[Mapping[str, str]] = {
    "400": "The request must be changed. `param` names the field.",
    "401": "The key is missing, malformed, unknown, revoked or expired.",
    "404": "There is no such model.",
    "405": "There is nothing for this method here.",
    "413": "The body is too large.",
    "415": "The body is not JSON.",
    "500": "The engine failed under this request.",
    "503": "Try again later: the model is starting, or all its places are taken.",
}


@dataclass(frozen=True, slots=True)
class Facts:
    """What the document says of the server that serves it."""

    version: str
    max_body_mb: int


def document(facts: Facts) -> Document:
    """The whole document, as JSON values."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Vinery",
            "version": facts.version,
            "description": _DESCRIPTION.format(max_body_mb=facts.max_body_mb),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"key": []}],
        "paths": all_paths(),
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "headers": _headers(),
            "responses": {f"Error{status}": _error(status) for status in _WHY},
            "schemas": _schemas(),
        },
    }


def _schemas() -> Mapping[str, Schema]:
    models: Iterable[type[BaseModel]] = (*BODIES.values(), *_TOKENIZER_BODIES, *_ANSWERS)
    schemas = component_schemas(models)
    for endpoint, body in BODIES.items():
        describe(schemas, body.__name__, MEANINGS)
        add_refused(schemas[body.__name__], endpoint)
    for tokenizer_body in _TOKENIZER_BODIES:
        describe(schemas, tokenizer_body.__name__, TOKENIZER_MEANINGS)
    return _reachable(schemas, [model.__name__ for model in models])


def _reachable(schemas: Mapping[str, Schema], names: Iterable[str]) -> Mapping[str, Schema]:
    """These schemas and all that they refer to, by name."""
    found: dict[str, Schema] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = schemas[name]
            waiting += _references(schemas[name])
    return dict(sorted(found.items()))


def _references(value: Any) -> Iterable[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"].removeprefix(PREFIX)
        for each in value.values():
            yield from _references(each)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each)


def _error(status: str) -> Document:
    names = ["x-request-id"]
    names += {"401": ["WWW-Authenticate"], "405": ["Allow"], "503": ["Retry-After"]}.get(status, [])
    schema = {"$ref": PREFIX + answers.Error.__name__}
    return {
        "description": _WHY[status],
        "content": {"application/json": {"schema": schema}},
        "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in names},
    }


def _headers() -> Document:
    said = {
        "x-request-id": "Names the request in the server's log.",
        "Retry-After": "Seconds to wait before the next try.",
        "Allow": "The methods that there are.",
        "WWW-Authenticate": "How to send the key: `Authorization: Bearer KEY`.",
    }
    return {
        name: {"description": text, "required": True, "schema": {"type": "string"}}
        for name, text in said.items()
    }
