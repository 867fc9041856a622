"""Data URLs are read in every form that clients send, and refused with a sentence."""

import base64
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tables import table
from vinery_serving.core import data_urls
from vinery_serving.core.errors import InvalidRequest, ServingError, cited
from vinery_serving.gateway.workers.worker import decode_refusal, encode_refusal
from vinery_serving.media.rules import Denial, DenialReason, MediaDenied

DATA = bytes(range(256)) + b"\xfb\xff\xbf?>"
STANDARD = base64.b64encode(DATA).decode()
URL_SAFE = base64.urlsafe_b64encode(DATA).decode()
_MIB = 2**20


@table(
    "url",
    [
        f"data:image/png;base64,{STANDARD}",
        f"data:;base64,{STANDARD}",
        f"DATA:Image/PNG;BASE64,{STANDARD}",
        f"  data: image/png ; base64 ,{STANDARD}\n",
        f"data:image/jpeg;charset=utf-8;name=a%20b.jpg;base64,{STANDARD}",
        f"data:application/octet-stream;base64;name=grape,{STANDARD}",
        f"data:image/png;base64,{STANDARD.rstrip('=')}",
        f"data:image/png;base64,{URL_SAFE}",
        f"data:image/png;base64,{URL_SAFE.rstrip('=')}",
        f"data:image/png;base64,{STANDARD[:8]}\r\n\t {STANDARD[8:]}",
    ],
)
def test_every_common_form_is_read(url: str) -> None:
    assert data_urls.is_data_url(url)
    assert data_urls.decode_data_url(url, len(DATA)) == DATA


@given(st.binary(min_size=1), st.booleans(), st.booleans(), st.integers(1, 80))
def test_any_bytes_survive_any_alphabet_padding_and_line_length(
    data: bytes, url_safe: bool, has_padding: bool, line_length: int
) -> None:
    encode = base64.urlsafe_b64encode if url_safe else base64.b64encode
    text = encode(data).decode()
    text = text if has_padding else text.rstrip("=")
    lines = [text[start : start + line_length] for start in range(0, len(text), line_length)]

    assert data_urls.decode_base64("\r\n".join(lines), len(data)) == data


@given(st.text())
def test_any_text_is_read_or_refused_with_a_sentence(text: str) -> None:
    for url in (text, "data:" + text, "data:image/png;base64," + text, "data:," + text):
        try:
            data_urls.decode_data_url(url, 10)
        except data_urls.InvalidDataUrl as error:
            assert str(error).startswith("must ")


@table(
    "url, sentence",
    [
        ("https://example.com/a.png", "must begin like"),
        ("data:image/png;base64", "must begin like"),
        ("data:image/png;base64,", "must not be empty"),
        ("data:,AAAA", "must begin like"),
        ("data:image/png;base64, \n", "must not be empty"),
        ("data:image/png;base64,====", "must not be empty"),
        ("data:image/png;base64,AAAAA", "complete base64"),
        ("data:image/png;base64,AA===", "complete base64"),
        ("data:image/png;base64,AA=A", "at its end alone"),
        ("data:image/png;base64,AA==AAAA", "at its end alone"),
        ("data:image/png;base64,AA!A", "letters, digits"),
        ("data:image/png;base64,AAÄA", "\\xc4"),
        ("data:image/png;base64,AA%A", "letters, digits"),
    ],
)
def test_a_malformed_url_is_refused_with_what_is_wrong(url: str, sentence: str) -> None:
    with pytest.raises(data_urls.InvalidDataUrl) as refusal:
        data_urls.decode_data_url(url, 100)

    assert sentence in str(refusal.value)


def test_too_much_is_refused_without_a_multiple_of_its_memory() -> None:
    url = f"data:;base64,{'A' * 32 * _MIB}"
    tracemalloc.start()
    try:
        with pytest.raises(data_urls.TooManyBytes):
            data_urls.decode_data_url(url, _MIB)
        assert tracemalloc.get_traced_memory()[1] < 8 * len(url)
    finally:
        tracemalloc.stop()


# -- What usage records keep of an error: its sentence and field, without texts of the client

SECRET = "my bank is broke"


@table(
    "error, shown, message, param",
    [
        (
            InvalidRequest(f"`stop[1]` is no word: {cited(SECRET)}.", param="stop[1]"),
            f"`stop[1]` is no word: {SECRET}.",
            "`stop[1]` is no word: ….",
            "stop[1]",
        ),
        (
            InvalidRequest(f'`tools[0]["{SECRET}"].x` must be 1.', param=f'tools[0]["{SECRET}"].x'),
            f'`tools[0]["{SECRET}"].x` must be 1.',
            "`tools[0][…].x` must be 1.",
            "tools[0][…].x",
        ),
        (
            InvalidRequest(f"`metadata.{SECRET}` is bad.", param=f"metadata.{SECRET}"),
            f"`metadata.{SECRET}` is bad.",
            "`metadata.my…` is bad.",
            "metadata.my…",
        ),
        (
            MediaDenied(f"They do not allow {SECRET}.", Denial(DenialReason.ADDRESS, "platform")),
            f"They do not allow {SECRET}.",
            "The media rules do not allow a URL or file of the request.",
            "",
        ),
        (ServingError(cited("\x02a\x03b" * 9000)), None, "…", ""),
        (ServingError("é" * 9000), None, "é" * 500, ""),
    ],
)
def test_a_record_has_no_text_of_the_client(
    error: ServingError, shown: str | None, message: str, param: str
) -> None:
    assert shown is None or error.message == str(error) == shown
    assert "\x02" not in error.message
    assert error.recorded == (message, param)
    if not isinstance(error, MediaDenied):  # workers fetch no media
        assert decode_refusal(encode_refusal(error)).recorded == (message, param)
