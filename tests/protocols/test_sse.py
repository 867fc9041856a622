"""Framing and JSON bytes."""

from __future__ import annotations

import json

from hypothesis import given

from serving.protocols import sse

from .streams import TEXTS


@given(TEXTS)
def test_text_survives_on_one_line(text: str) -> None:
    encoded = sse.json_text(text)

    assert json.loads(encoded) == text
    assert len(encoded.decode().splitlines()) == 1
    assert sse.json_bytes(text) == encoded


def test_line_ends_of_unicode_are_escaped_and_letters_are_not() -> None:
    assert sse.json_text("ü\u2028\u2029\x85中") == '"ü\\u2028\\u2029\\u0085中"'.encode()


def test_numbers_that_json_has_no_word_for_are_null() -> None:
    assert sse.json_bytes([float("nan"), float("inf")]) == b"[null,null]"


def test_a_frame_is_one_event() -> None:
    assert sse.frame(b"{}") == b"data: {}\n\n"
    assert sse.named_frame("a.b", b"{}") == b"event: a.b\ndata: {}\n\n"


def test_a_keep_alive_is_a_comment_without_a_blank_line() -> None:
    assert sse.KEEP_ALIVE.startswith(b":")
    assert sse.KEEP_ALIVE.count(b"\n") == 1
