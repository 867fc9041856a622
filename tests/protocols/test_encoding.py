"""Framing and JSON bytes, and the bodies and headers of errors."""

import json

from hypothesis import given

from vinery_serving.core import errors
from vinery_serving.protocols.common import encoding

from .streams import TEXTS


@given(TEXTS)
def test_text_survives_on_one_line(text: str) -> None:
    encoded = encoding.json_text(text)

    assert json.loads(encoded) == text
    assert len(encoded.decode().splitlines()) == 1
    assert encoding.json_bytes(text) == encoded


def test_line_ends_of_unicode_are_escaped_letters_are_not_and_nan_is_null() -> None:
    assert encoding.json_text("ü\u2028\u2029\x85中") == '"ü\\u2028\\u2029\\u0085中"'.encode()
    assert encoding.json_bytes([float("nan"), float("inf")]) == b"[null,null]"


def test_only_errors_about_retries_have_retry_headers() -> None:
    assert encoding.error_headers(errors.ModelNotReady("")) == {"Retry-After": "2"}
    assert encoding.error_headers(errors.DeadlineExceeded("")) == {"x-should-retry": "false"}
    assert encoding.error_headers(errors.EngineLost("")) == {}
