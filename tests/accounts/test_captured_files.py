"""Captures keep the texts of a body, and not its files."""

from __future__ import annotations

import json

import pytest

from vinery_accounts.captures.files import without_files

LONG = "QUJD" * 1000
MANY = 10**6


def body_of(*urls: str, text: str = "What is it?") -> bytes:
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return json.dumps({"messages": [{"role": "user", "content": [*parts, text]}]}).encode()


def test_pictures_are_left_out_and_the_texts_after_them_stay() -> None:
    body = body_of(f"data:image/png;base64,{LONG}", f"data:image/gif;base64,{LONG}")
    kept, num_bytes = without_files(body, MANY)

    left_out = f"[{len(LONG)} characters of a file]"
    assert kept == body.replace(LONG.encode(), left_out.encode())
    assert num_bytes == len(kept)
    assert json.loads(kept)["messages"][0]["content"][-1] == "What is it?"


@pytest.mark.parametrize("separator", [": ", ":", " :\n "])
@pytest.mark.parametrize("start", ["", "data:application/pdf;base64,"])
def test_the_contents_of_a_file_are_left_out_with_and_without_the_start_of_a_url(
    start: str, separator: str
) -> None:
    body = f'{{"file_data"{separator}"{start}{LONG}", "filename": "a.pdf"}}'.encode()
    kept, _ = without_files(body, MANY)

    assert json.loads(kept)["file_data"] == f"[{len(start + LONG)} characters of a file]"
    assert json.loads(kept)["filename"] == "a.pdf"


@pytest.mark.parametrize("max_bytes", [0, 1, 60, 61, 70, 90, 100, 120, 200, 10_000])
def test_so_many_bytes_are_kept(max_bytes: int) -> None:
    body = body_of(f"data:;base64,{LONG}", text="a" * 50)
    whole, num_bytes = without_files(body, MANY)

    assert without_files(body, max_bytes) == (whole[:max_bytes], num_bytes)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"prompt": ";base64,short"}', b'"file_data"'])
def test_a_body_without_files_stays(body: bytes) -> None:
    assert without_files(body, MANY) == (body, len(body))


def test_a_file_in_a_broken_body_is_left_out_too() -> None:
    kept, _ = without_files(b'{"a": "data:;base64,' + LONG.encode(), MANY)

    assert kept == b'{"a": "data:;base64,[4000 characters of a file]'
