"""The parameters for the usage record: what the client sent, without any text of the client."""

import json
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from tests.tables import table
from vinery_serving.core.dialects import V3
from vinery_serving.core.errors import ServingError
from vinery_serving.core.tasks import Endpoint
from vinery_serving.protocols.common.reading import types_of
from vinery_serving.protocols.openapi import BODIES
from vinery_serving.protocols.responses.exchange import Unrecalled

from .exchanges import LEAST, OPENAI, parsed

CANARY = "Qx7canaryZw9"
# What a field may hold: a text of the client in each place.
SHAPES: list[Any] = [
    *(CANARY, [CANARY], [[CANARY]], {CANARY: CANARY}, {CANARY: 1}, {"name": CANARY}),
    *({"id": CANARY}, {"user_id": CANARY}, {"type": CANARY}, {"type": CANARY, "name": CANARY}),
    {"type": "function", "function": {"name": CANARY}},
    {"type": "structural_tag", "format": {"type": "const_string", "value": CANARY}},
    {"type": "object", "properties": {CANARY: {"const": CANARY}}, "title": CANARY},
    [{"role": "user", "content": CANARY, "name": CANARY, CANARY: CANARY}],
    [{"role": "user", "content": [{"type": "text", "text": CANARY}]}],
    [{"type": "message", "role": "user", "content": CANARY}],
    [{"type": "text", "text": CANARY}],
    [{"type": "function", "function": {"name": CANARY, "description": CANARY}}],
    [{"type": "function", "name": CANARY, "parameters": {"properties": {CANARY: {}}}}],
    [{"name": CANARY, "description": CANARY, "input_schema": {"title": CANARY}}],
]


def sent(endpoint: Endpoint, **fields: Any) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(parsed(endpoint, **fields).request.sent)
    return read


def test_a_request_with_many_parameters_keeps_some() -> None:
    switches = {
        each: False
        for each, field in BODIES[Endpoint.CHAT].model_fields.items()
        if bool in types_of(field.annotation)
    }
    samplers = {"temperature": 0.5, "top_p": 0.5, "top_k": 5, "min_p": 0.1, "seed": 7, "n": 1}
    penalties = dict.fromkeys(("presence_penalty", "frequency_penalty", "min_tokens"), 0)
    assert len(sent(Endpoint.CHAT, **switches, **samplers, **penalties, max_tokens=9)) == 32


def filled(model: type[BaseModel], depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Each field with each shape, also within the models of fields."""
    for name, field in model.model_fields.items():
        at = field.alias or name
        yield from ((at, shape) for shape in SHAPES)
        for inner in types_of(field.annotation):
            if isinstance(inner, type) and issubclass(inner, BaseModel) and depth < 3:
                usual = {"type": "json_schema"} if "type" in inner.model_fields else {}
                for member, shape in filled(inner, depth + 1):
                    yield at, {member: shape}
                    yield at, {**usual, member: shape}


@table("endpoint", list(BODIES))
def test_no_text_of_a_client_is_among_them(endpoint: Endpoint) -> None:
    taken = set()
    for name, value in filled(BODIES[endpoint]):
        try:
            read = parsed(endpoint, V3, **{name: value})
        except ServingError:
            continue
        taken.add(name)
        if not isinstance(read, Unrecalled):  # such a body is read again
            assert CANARY not in read.request.sent, (name, value)
    assert {*LEAST[endpoint], "model", "user", "request_id", "cache_salt"} <= taken | {"max_tokens"}
    if endpoint in OPENAI:
        assert {"metadata", "guided_regex", "guided_json", "response_format", "stop"} <= taken
