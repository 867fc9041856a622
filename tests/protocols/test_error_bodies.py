"""The bodies and headers of errors."""

from __future__ import annotations

import json

from tests.tables import table
from vinery_serving.core.errors import (
    ContextTooLong,
    DeadlineExceeded,
    EngineLost,
    InvalidKey,
    InvalidRequest,
    ModelNotFound,
    ModelNotReady,
    ServingError,
)
from vinery_serving.protocols.common.encoding import error_body, error_headers


def test_all_four_keys_are_always_there() -> None:
    error = json.loads(error_body(InvalidRequest("No.", param="n")))

    assert error == {
        "error": {
            "message": "No.",
            "type": "invalid_request_error",
            "param": "n",
            "code": "invalid_value",
        }
    }
    assert json.loads(error_body(ServingError("Oh."))) == {
        "error": {"message": "Oh.", "type": "server_error", "param": None, "code": None}
    }


@table(
    "error, code",
    [
        (InvalidKey(""), "invalid_api_key"),
        (ModelNotFound(""), "model_not_found"),
        (
            ContextTooLong(
                max_context=1, num_prompt_tokens=1, num_output_tokens=1, param="messages"
            ),
            "context_length_exceeded",
        ),
        (InvalidRequest("", code="custom"), "custom"),
    ],
)
def test_the_code_of_an_error_can_be_its_own(error: ServingError, code: str) -> None:
    assert json.loads(error_body(error))["error"]["code"] == code


def test_only_errors_about_retries_have_retry_headers() -> None:
    assert error_headers(ModelNotReady("")) == {"Retry-After": "2"}
    assert error_headers(DeadlineExceeded("")) == {"x-should-retry": "false"}
    assert error_headers(EngineLost("")) == {}
