"""Which answers to hostile requests are wrong."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.hostile.case import CHAT, MESSAGES, Case, constant, filled, with_fields
from tests.hostile.send import Outcome, fault_of
from tests.tables import table

CASE = Case("many tools", "prompt", CHAT, constant({}), param="tools")


def refused(status: int = 400, **error: Any) -> Outcome:
    return Outcome(status, json.dumps({"error": {"message": "no", **error}}).encode(), {})


@table(
    "outcome, words",
    [
        (Outcome(200), None),
        (refused(param="tools[3].name"), None),
        (refused(param=None, message="`tools` must have at most 128 entries."), None),
        (refused(param=None, code="context_length_exceeded"), None),
        (Outcome(429, headers={"retry-after": "1"}), None),
        (Outcome(503, headers={"retry-after": "1"}), None),
        (Outcome(0), "no answer"),
        (Outcome(500, b"{}"), "status 500"),
        (Outcome(503, headers={}), "without Retry-After"),
        (Outcome(400, b"<html>"), "without an error object"),
        (refused(param="messages"), "tools is not named"),
        (refused(param=None), "tools is not named"),
    ],
)
def test_a_failure_or_refusal_of_other_fields_is_wrong(outcome: Outcome, words: str | None) -> None:
    fault = fault_of(CASE, outcome)

    assert (fault is None) is (words is None)
    assert words is None or words in str(fault)


def of_anthropic(message: str, **members: Any) -> Outcome:
    error = {"type": "invalid_request_error", "message": message}
    body = {"type": "error", "error": error, "request_id": "req_1", **members}
    return Outcome(400, json.dumps(body).encode(), {})


@pytest.mark.parametrize("param", ["tools", None])
def test_an_error_of_messages_has_anthropics_form(param: str | None) -> None:
    case = replace(CASE, path=MESSAGES, param=param)

    assert fault_of(case, of_anthropic("`tools[0].name` is required.")) is None
    assert fault_of(case, of_anthropic("The request body cannot be read: it is empty.")) is None
    wrong = fault_of(case, refused(param="tools"))
    assert wrong is not None
    assert "without an error object" in wrong
    assert fault_of(CASE, of_anthropic("`tools[0].name` is required.")) is not None


def test_an_error_of_messages_names_its_field_in_its_words() -> None:
    fault = fault_of(replace(CASE, path=MESSAGES), of_anthropic("`messages` is required."))
    assert fault is not None
    assert "tools is not named" in fault


def test_a_body_grows_with_its_size() -> None:
    body = filled(with_fields(CHAT, user="@hole@"), lambda size: '"' + "a" * size + '"')
    assert len(body(2000)) - len(body(1000)) == 1000
    assert json.loads(body(5))["user"] == "aaaaa"
