"""The HTTP client reads what comes back, with the time of each event.

That it asks many at once is in `nightly_benches.py`.
"""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.load import BadResponse, Endpoint, read_stream
from tests.tables import table

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
USAGE = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}


def delta(**fields: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields}], "usage": None}


def event(content: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(content)}\n\n".encode()


def chunked(*reads: bytes) -> bytes:
    chunks = [f"{len(read):X}\r\n".encode() + read + b"\r\n" for read in reads]
    return HEAD + b"".join(chunks) + b"0\r\n\r\n"


RESPONSE = chunked(
    event(delta(role="assistant", content="")),
    event(delta(reasoning_content="So.")),
    b": keep-alive\n",
    event(delta(content="É 🙂")),
    event(delta(content="!")) + event(USAGE) + b"data: [DONE]\n\n",
)


@given(st.lists(st.integers(1, len(RESPONSE) - 1), unique=True))
def test_it_reads_the_same_however_the_response_is_cut(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(RESPONSE)]
    reads = [(float(a), RESPONSE[a:b]) for a, b in pairwise(edges)]

    stream = read_stream(-0.5, reads)

    assert stream.text == "So.É 🙂!"
    assert (stream.num_prompt_tokens, stream.num_tokens) == (3, 4)
    assert len(stream.chunks_s) == 3
    assert list(stream.chunks_s) == sorted(stream.chunks_s)


@table(
    "response",
    [
        b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 200",
        chunked(event(delta(content="a"))),
        chunked(event(USAGE)),
        chunked(event({"error": {"message": "gone"}})),
    ],
)
def test_it_refuses_what_cannot_be_measured(response: bytes) -> None:
    with pytest.raises(BadResponse):
        read_stream(0.0, [(1.0, response)])


def test_it_measures_no_server_behind_tls() -> None:
    with pytest.raises(ValueError, match="http://HOST:PORT"):
        _ = Endpoint("https://example.org", "key").address
