"""Every row of the table of errors, on both trees: it names its field, and says what to
change. What else is refused, and what is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from docs.refusals import ACCEPTED, EVERYWHERE, INVALID, ONE_BY_ONE, UNSUPPORTED, Row
from serving.core.errors import InvalidRequest
from serving.core.request import DIALECTS, V1, V3, Dialect, Endpoint
from serving.protocols.refused import REFUSED, refusal

from .exchanges import exchange

CHAT, RESPONSES = Endpoint.CHAT, Endpoint.RESPONSES
MISTAKES = [(endpoint, row) for endpoint, rows in ONE_BY_ONE.items() for row in rows]


def refused(endpoint: Endpoint, dialect: Dialect = V1, /, **fields: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        exchange(endpoint, dialect, **fields)
    error = caught.value
    assert (error.status, error.type) == (400, "invalid_request_error")
    return error


@pytest.mark.parametrize("endpoint", Endpoint)
@pytest.mark.parametrize(("field", "value", "sentence"), EVERYWHERE)
def test_a_bad_value_is_refused_everywhere(
    endpoint: Endpoint, field: str, value: Any, sentence: str
) -> None:
    for dialect in DIALECTS.values():
        error = refused(endpoint, dialect, **{field: value})

        assert (error.code, error.param) == (INVALID, field)
        assert error.message == f"`{field}` {sentence}."


@pytest.mark.parametrize(("endpoint", "row"), MISTAKES)
def test_it_says_what_to_change(endpoint: Endpoint, row: Row) -> None:
    for tree in row.trees:
        error = refused(endpoint, DIALECTS[tree], **row.fields)

        assert (error.code, error.param) == (row.code, row.param)
        assert error.message == row.message
        assert error.message.endswith(".")


@pytest.mark.parametrize(
    ("endpoint", "row"), [(endpoint, row) for endpoint, row in MISTAKES if row.trees == ("v1",)]
)
def test_what_only_v1_refuses_v3_accepts(endpoint: Endpoint, row: Row) -> None:
    assert exchange(endpoint, V3, **row.fields).request.dialect == V3


@pytest.mark.parametrize(
    ("endpoint", "fields"),
    [(endpoint, fields) for endpoints, fields, _ in ACCEPTED for endpoint in endpoints],
)
def test_what_others_refuse_is_accepted(endpoint: Endpoint, fields: Mapping[str, Any]) -> None:
    for dialect in DIALECTS.values():
        assert exchange(endpoint, dialect, **fields).request.dialect == dialect


@pytest.mark.parametrize("part", ["image_url", "input_image", "input_audio", "file", "video_url"])
@pytest.mark.parametrize("endpoint", [CHAT, RESPONSES])
def test_media_is_refused_because_the_model_serves_text_only(endpoint: Endpoint, part: str) -> None:
    field = "messages" if endpoint is CHAT else "input"
    content = [{"type": "text", "text": "See:"}, {"type": part, part: {}}]

    error = refused(endpoint, **{field: [{"role": "user", "content": content}]})

    assert (error.code, error.param) == (INVALID, f"{field}[0].content[1]")
    assert "serves text only" in error.message


@pytest.mark.parametrize(
    ("endpoint", "name"),
    [(endpoint, name) for endpoint, names in REFUSED.items() for name in names],
)
def test_what_cannot_be_honoured_is_refused_with_the_reason(endpoint: Endpoint, name: str) -> None:
    error = refused(endpoint, **{name: "asked for"})

    assert (error.code, error.param) == (UNSUPPORTED, name)
    assert error.message == refusal(endpoint, name)
    # A reason stands between the two, and says more than that.
    assert f"`{name}` is not supported by this server: " in error.message
    assert len(error.message.partition(": ")[2].partition(". Leave it out")[0].split()) > 3


@pytest.mark.parametrize(
    ("endpoint", "name", "default"),
    [
        (endpoint, name, default)
        for endpoint, names in REFUSED.items()
        for name, defaults in names.items()
        for default in (None, *defaults)
    ],
)
def test_asking_for_nothing_special_is_not_refused(
    endpoint: Endpoint, name: str, default: Any
) -> None:
    assert exchange(endpoint, **{name: default}).request == exchange(endpoint).request


def test_false_is_not_zero() -> None:
    assert refused(CHAT, priority=False).param == "priority"
    assert refused(CHAT, logprobs=0).param == "logprobs"
