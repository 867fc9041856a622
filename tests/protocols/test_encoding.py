"""Framing and JSON bytes."""

from __future__ import annotations

import json

from hypothesis import given

from vinery_serving.protocols.common import encoding

from .streams import TEXTS


@given(TEXTS)
def test_text_survives_on_one_line(text: str) -> None:
    encoded = encoding.json_text(text)

    assert json.loads(encoded) == text
    assert len(encoded.decode().splitlines()) == 1
    assert encoding.json_bytes(text) == encoded


def test_line_ends_of_unicode_are_escaped_and_letters_are_not() -> None:
    assert encoding.json_text("ü\u2028\u2029\x85中") == '"ü\\u2028\\u2029\\u0085中"'.encode()


def test_nan_and_infinities_are_null() -> None:
    assert encoding.json_bytes([float("nan"), float("inf")]) == b"[null,null]"


def test_a_frame_is_one_event() -> None:
    assert encoding.frame(b"{}") == b"data: {}\n\n"
    assert encoding.named_frame("a.b", b"{}") == b"event: a.b\ndata: {}\n\n"


def test_a_keep_alive_is_a_comment_without_a_blank_line() -> None:
    assert encoding.KEEP_ALIVE.startswith(b":")
    assert encoding.KEEP_ALIVE.count(b"\n") == 1
