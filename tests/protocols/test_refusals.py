"""Wrong bodies are refused on both URL trees, with the name of the field and a message that says
what to change. `golden/errors` has the bodies, and bodies that other servers refuse or misread.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.tables import golden_errors, table
from vinery_serving.core.dialects import DIALECTS, V1, V3, Dialect
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.tasks import GENERATION_ENDPOINTS, Endpoint
from vinery_serving.protocols.common.body_fields import REFUSED
from vinery_serving.protocols.openapi import BODIES, component_schemas

from .exchanges import exchange, parsed

CHAT, RESPONSES = Endpoint.CHAT, Endpoint.RESPONSES
Row = dict[str, Any]


def rows_of(name: str) -> list[tuple[Endpoint, Row]]:
    """The rows of a file, each with one of its endpoints."""
    return [(Endpoint(each), row) for row in golden_errors(name) for each in row["endpoints"]]


ROWS = rows_of("bodies")
# For each JSON type, values of other types.
OTHERS: dict[str, tuple[Any, ...]] = {
    "boolean": ("yes", 1),
    "integer": ("one", 1.5, True),
    "number": ("warm", True, []),
    "string": (5,),
    "array": (5, {}),
    "object": (5, []),
}


def wrong_values(body: Any) -> Iterator[tuple[str, Any]]:
    """Each field with one JSON type, and values beyond its type and limits."""
    for name, schema in component_schemas([body])[body.__name__]["properties"].items():
        options = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
        if len(options) != 1 or options[0].keys().isdisjoint(("type", "$ref")):
            continue
        (option,) = options
        kind = "object" if "$ref" in option else option["type"]
        wrong = [*OTHERS[kind], *([] if "enum" not in option else ["no such"])]
        for keyword, step in (("minimum", -1), ("maximum", 1)):
            wrong += [option[keyword] + step] if keyword in option else []
        for keyword in ("exclusiveMinimum", "exclusiveMaximum"):
            wrong += [option[keyword]] if keyword in option else []
        wrong += [""] if option.get("minLength") else []
        wrong += ["a b"] if "pattern" in option else []
        yield from ((name, value) for value in wrong)


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


@table("endpoint", BODIES)
def test_a_value_beyond_the_type_or_the_limits_of_a_field_is_refused(endpoint: Endpoint) -> None:
    for each, field, value in WRONG_VALUES:
        if each is endpoint:
            error = refused(endpoint, V1, **{field: value})

            assert (error.code, error.param) == ("invalid_value", field), value
            assert error.message.startswith(f"`{field}` ")


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
        *((endpoint, {field: value}) for endpoint, field, value in WRONG_VALUES),
        *((endpoint, row["fields"]) for endpoint, row in ROWS),
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
    endpoint: Endpoint, row: Row
) -> None:
    trees = row.get("trees", DIALECTS)
    for tree in trees:
        error = refused(endpoint, DIALECTS[tree], **row["fields"])

        assert (error.code, error.param) == (row["code"], row["param"])
        assert error.message == row["message"]
        assert error.message.endswith(".")
    if trees == ["v1"]:
        assert endpoint in GENERATION_ENDPOINTS
        assert exchange(endpoint, V3, **row["fields"]).request.dialect == V3


@table("endpoint, row", rows_of("accepted"))
def test_a_body_that_other_servers_refuse_is_accepted(endpoint: Endpoint, row: Row) -> None:
    for dialect in DIALECTS.values():
        assert exchange(endpoint, dialect, **row["fields"]).request.dialect == dialect


@table("endpoint, name", [(each, name) for each in Endpoint for name in REFUSED[each]])
def test_an_unsupported_parameter_is_refused_with_the_reason_unless_it_is_the_default(
    endpoint: Endpoint, name: str
) -> None:
    error = refused(endpoint, **{name: "asked for"})

    assert (error.code, error.param) == ("unsupported_parameter", name)
    assert error.message == REFUSED[endpoint][name].message(name)
    assert f"`{name}` is not supported by this server: " in error.message
    assert len(error.message.partition(": ")[2].partition(". Leave it out")[0].split()) > 3
    for default in (None, *REFUSED[endpoint][name].harmless):
        assert parsed(endpoint, **{name: default}).request == parsed(endpoint).request
