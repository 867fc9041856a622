"""The OpenAPI document agrees with the parsers and the answers."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import TypeAdapter

from docs.parameters import parameters
from tests.tables import table
from vinery_serving.core.dialects import DIALECTS, V1
from vinery_serving.core.errors import EngineLost
from vinery_serving.core.events import Failed, Started, TextDelta
from vinery_serving.core.request import Endpoint
from vinery_serving.core.tasks import GENERATION_ENDPOINTS, POOLING_ENDPOINTS
from vinery_serving.protocols.chat import ChatCompletion, ChatCompletionChunk
from vinery_serving.protocols.common.body_fields import REFUSED
from vinery_serving.protocols.common.encoding import Answer, Error
from vinery_serving.protocols.completions import Completion
from vinery_serving.protocols.messages.exchange import MessageAnswer, MessageEvent
from vinery_serving.protocols.openapi import BODIES, PREFIX, document
from vinery_serving.protocols.responses.objects import Response, ResponseEvent
from vinery_serving.protocols.tokens import DetokenizeBody, TokenizeBody

from . import exchanges
from .clients import payloads
from .exchanges import LEAST, OPENAI, answered, exchange, parsed, streamed
from .streams import event_streams

DOCUMENT = document(version="1.2.3", max_body_mb=64)
PATHS: dict[str, Any] = DOCUMENT["paths"]
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "protocols"
WHOLE: dict[Endpoint, type[Answer]] = {
    Endpoint.CHAT: ChatCompletion,
    Endpoint.COMPLETIONS: Completion,
    Endpoint.RESPONSES: Response,
    Endpoint.MESSAGES: MessageAnswer,
}
EVENT: dict[Endpoint, type[Answer]] = {
    Endpoint.CHAT: ChatCompletionChunk,
    Endpoint.COMPLETIONS: Completion,
    Endpoint.RESPONSES: ResponseEvent,
    Endpoint.MESSAGES: MessageEvent,
}


@cache
def validator(name: str) -> Draft202012Validator:
    """A validator for a schema of the document."""
    return Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": _local(SCHEMAS)})


def _local(schema: Any) -> Any:
    return json.loads(json.dumps(schema).replace(PREFIX, "#/$defs/"))


def fits(name: str, value: object) -> bool:
    return bool(validator(name).is_valid(value))


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for each in value.values():
            yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


# -- The document ---------------------------------------------------------------------------


def test_both_trees_have_the_same_paths() -> None:
    trees = [
        {path.removeprefix(f"/{tree}/") for path in PATHS if path.startswith(f"/{tree}")}
        for tree in DIALECTS
    ]

    assert trees[0] == trees[1]
    assert set(map(str, Endpoint)) < trees[0]


def test_every_schema_is_valid_and_every_reference_has_a_target() -> None:
    for schema in SCHEMAS.values():
        Draft202012Validator.check_schema(schema)
    for reference in references(DOCUMENT):
        node: Any = DOCUMENT
        for step in reference.removeprefix("#/").split("/"):
            node = node[step]


def test_every_operation_has_its_own_name_and_only_documents_of_the_server_need_no_key() -> None:
    operations = [each for path in PATHS.values() for each in path.items()]
    names = [each["operationId"] for method, each in operations if method != "parameters"]

    assert len(names) == len(set(names))

    assert DOCUMENT["security"] == [{"key": []}]
    public = [path for path, item in PATHS.items() if item.get("get", {}).get("security") == []]

    assert public == ["/version", "/openapi.json"]


# -- Requests -----------------------------------------------------------------------------------


@table("body", [*BODIES.values(), TokenizeBody, DetokenizeBody])
def test_every_field_of_a_body_has_a_description(body: Any) -> None:
    properties = SCHEMAS[body.__name__]["properties"]

    assert all(field.description for _, field in parameters(body))
    for name, field in body.model_fields.items():
        known = properties[field.alias or name]
        assert known["description"] == field.description or "x-refused" in known


@table("endpoint, name", [(each, name) for each in Endpoint for name in REFUSED[each]])
def test_every_refused_field_is_marked_with_the_sentence_that_clients_get(
    endpoint: Endpoint, name: str
) -> None:
    schema = BODIES[endpoint].__name__

    assert SCHEMAS[schema]["properties"][name]["x-refused"] == REFUSED[endpoint][name].message(name)
    assert not fits(schema, {**LEAST[endpoint], name: "asked for"})
    for harmless in (None, *REFUSED[endpoint][name].harmless):
        assert fits(schema, {**LEAST[endpoint], name: harmless})


@table("endpoint", GENERATION_ENDPOINTS)
def test_unknown_fields_are_accepted_by_the_document_and_by_the_parser(endpoint: Endpoint) -> None:
    body = {**LEAST[endpoint], "unheard_of": {"a": [1]}}

    assert fits(BODIES[endpoint].__name__, body)
    assert exchange(endpoint, unheard_of={"a": [1]}).request == exchange(endpoint).request


@table("endpoint", [*OPENAI, *POOLING_ENDPOINTS])
def test_every_field_may_be_null_but_the_texts_of_pooling(endpoint: Endpoint) -> None:
    schema, is_pooling = BODIES[endpoint].__name__, endpoint in POOLING_ENDPOINTS
    for name in SCHEMAS[schema]["properties"].keys() - (LEAST[endpoint] if is_pooling else {}):
        assert fits(schema, {**LEAST[endpoint], name: None}), name
        if is_pooling:
            assert parsed(endpoint, **{name: None}).request == parsed(endpoint).request


@table("endpoint", OPENAI)
@table("nothing", [None, []])
def test_a_request_needs_a_prompt(endpoint: Endpoint, nothing: Any) -> None:
    content = PATHS[f"/v1/{endpoint}"]["post"]["requestBody"]["content"]
    schema = content["application/json"]["schema"]
    (field,) = LEAST[endpoint]
    body = {"model": "tiny-chat", field: nothing}

    judge = Draft202012Validator({**_local(schema), "$defs": _local(SCHEMAS)})
    assert judge.is_valid(LEAST[endpoint])
    assert not judge.is_valid(body)
    assert not judge.is_valid({"model": "tiny-chat"})


# -- Answers ------------------------------------------------------------------------------------


def hold_against(kind: Any, answer: object) -> None:
    """Every member is described, and the published schema agrees."""
    TypeAdapter(kind).validate_json(json.dumps(answer))
    name = kind.__name__
    assert fits(name, answer), next(iter(validator(name).iter_errors(answer)))


def hold_stream(endpoint: Endpoint, stream: bytes) -> None:
    for event in payloads(stream):
        is_error = set(event) == {"error"}
        hold_against(Error if is_error else EVENT[endpoint], event)


@table("path", sorted(GOLDEN.iterdir()))
def test_every_recorded_answer_is_as_described(path: Path) -> None:
    endpoint = next(
        each for each in GENERATION_ENDPOINTS if path.name.startswith(str(each).split("/")[0])
    )
    if path.suffix == ".json":
        hold_against(WHOLE[endpoint], json.loads(path.read_bytes()))
    else:
        hold_stream(endpoint, path.read_bytes())


@table("endpoint", GENERATION_ENDPOINTS)
@given(st.data(), st.integers(1, 3), st.booleans())
def test_every_answer_is_as_described(
    endpoint: Endpoint, data: st.DataObject, n: int, is_scored: bool
) -> None:
    if endpoint in (Endpoint.RESPONSES, Endpoint.MESSAGES):
        n = 1
    is_scored = is_scored and endpoint is not Endpoint.MESSAGES
    only = endpoint is Endpoint.COMPLETIONS
    events = data.draw(event_streams(n, with_tokens=is_scored, only_functions=only))
    scored = {"logprobs": 1 if endpoint is Endpoint.COMPLETIONS else True} if is_scored else {}
    options = {"include_usage": True, "include_obfuscation": data.draw(st.booleans())}
    asked = exchange(endpoint, n=n, stream=True, stream_options=options, **scored)

    hold_stream(endpoint, streamed(asked, events))
    hold_against(WHOLE[endpoint], answered(asked, events))


@table("endpoint", GENERATION_ENDPOINTS)
def test_the_error_of_a_stream_and_what_a_request_adds_are_as_described(endpoint: Endpoint) -> None:
    events = [Started(), TextDelta(0, "a"), Failed(EngineLost("Send it again."))]

    hold_stream(endpoint, streamed(exchange(endpoint, stream=True), events))

    key = "user_id" if endpoint is Endpoint.MESSAGES else "k"
    asked = exchange(endpoint, V1, metadata={key: "v"}, service_tier="auto", user="u")

    hold_against(WHOLE[endpoint], answered(asked, exchanges.TWO_CALLS))
