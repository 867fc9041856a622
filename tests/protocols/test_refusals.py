"""Every documented wrong value and wrong body is refused on both URL trees, with the name of its
field and its documented message. Other bodies are refused or accepted as documented.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from docs.mistakes import ACCEPTED, INVALID, MISTAKES, UNSUPPORTED, Mistake
from docs.wrong_values import wrong_values
from tests.tables import table
from vinery_serving.core.dialects import DIALECTS, V1, V3, Dialect
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.tasks import GENERATION_ENDPOINTS, Endpoint
from vinery_serving.protocols.common.refused import REFUSED
from vinery_serving.protocols.openapi.document import BODIES

from .exchanges import exchange, parsed

CHAT, RESPONSES = Endpoint.CHAT, Endpoint.RESPONSES
ROWS = [(endpoint, row) for endpoint, rows in MISTAKES.items() for row in rows]
WRONG_VALUES = [
    (endpoint, *row)
    for endpoint, body in BODIES.items()
    for row in wrong_values(body)
    if row[0] not in REFUSED[endpoint]
]


def refused(endpoint: Endpoint, dialect: Dialect = V1, /, **fields: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        parsed(endpoint, dialect, **fields)
    error = caught.value
    assert (error.status, error.type) == (400, "invalid_request_error")
    return error


@table("endpoint, field, value, sentence", WRONG_VALUES)
def test_a_wrong_value_is_refused(
    endpoint: Endpoint, field: str, value: Any, sentence: str
) -> None:
    for dialect in DIALECTS.values():
        error = refused(endpoint, dialect, **{field: value})

        assert (error.code, error.param) == (INVALID, field)
        assert error.message == f"`{field}` {sentence}."


CANARY = "my bank is broke"


def with_canaries(value: Any, *kept: str) -> Any:
    """The value with this text in place of each text but those of the `kept` members."""
    match value:
        case str():
            return CANARY
        case list():
            return [with_canaries(each, *kept) for each in value]
        case Mapping():
            return {
                key: each if key in kept else with_canaries(each, *kept)
                for key, each in value.items()
            }
    return value


@table(
    "endpoint, fields",
    [
        *((endpoint, {field: value}) for endpoint, field, value, _ in WRONG_VALUES),
        *((endpoint, row.fields) for endpoint, row in ROWS),
    ],
)
def test_a_usage_record_has_no_text_of_a_refused_body(
    endpoint: Endpoint, fields: Mapping[str, Any]
) -> None:
    for each in (fields, with_canaries(fields), with_canaries(fields, "type", "role")):
        try:
            parsed(endpoint, V1, **each)
        except InvalidRequest as error:
            assert CANARY not in str(error.recorded)
            assert error.recorded[0]


@table("endpoint, row", ROWS)
def test_a_wrong_body_is_refused_and_accepted_by_v3_where_only_v1_refuses_it(
    endpoint: Endpoint, row: Mistake
) -> None:
    for tree in row.trees:
        error = refused(endpoint, DIALECTS[tree], **row.fields)

        assert (error.code, error.param) == (row.code, row.param)
        assert error.message == row.message
        assert error.message.endswith(".")
    if row.trees == ("v1",):
        assert endpoint in GENERATION_ENDPOINTS
        assert exchange(endpoint, V3, **row.fields).request.dialect == V3


@table(
    "endpoint, fields",
    [(endpoint, fields) for endpoints, fields, _ in ACCEPTED for endpoint in endpoints],
)
def test_a_body_that_other_servers_refuse_is_accepted(
    endpoint: Endpoint, fields: Mapping[str, Any]
) -> None:
    for dialect in DIALECTS.values():
        assert exchange(endpoint, dialect, **fields).request.dialect == dialect


@table("endpoint", [CHAT, RESPONSES])
def test_audio_is_refused_because_no_model_takes_it(endpoint: Endpoint) -> None:
    field = "messages" if endpoint is CHAT else "input"
    content = [{"type": "text", "text": "Hear:"}, {"type": "input_audio", "input_audio": {}}]

    error = refused(endpoint, **{field: [{"role": "user", "content": content}]})

    assert (error.code, error.param) == (INVALID, f"{field}[0].content[1]")
    assert "holds audio input" in error.message


@table("endpoint, name", [(each, name) for each, names in REFUSED.items() for name in names])
def test_an_unsupported_parameter_is_refused_with_the_reason_unless_it_is_the_default(
    endpoint: Endpoint, name: str
) -> None:
    error = refused(endpoint, **{name: "asked for"})

    assert (error.code, error.param) == (UNSUPPORTED, name)
    assert error.message == REFUSED[endpoint][name].message(name)
    assert f"`{name}` is not supported by this server: " in error.message
    assert len(error.message.partition(": ")[2].partition(". Leave it out")[0].split()) > 3
    for default in (None, *REFUSED[endpoint][name].harmless):
        assert parsed(endpoint, **{name: default}).request == parsed(endpoint).request


def test_false_is_not_zero() -> None:
    assert refused(CHAT, priority=False).param == "priority"
    assert refused(CHAT, logprobs=0).param == "logprobs"
