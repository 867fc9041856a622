"""A response has the same text however it is cut into reads, and each event has its time."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.wire import Arrivals, BadResponse, Head, read_stream
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


def at_once(response: bytes) -> Arrivals:
    return Arrivals((1.0,), (response,))


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
    reads = tuple(RESPONSE[a:b] for a, b in pairwise(edges))
    times_s = tuple(float(number) for number in range(1, len(reads) + 1))

    stream = read_stream(0.5, Arrivals(times_s, reads))

    assert stream.text == "So.É 🙂!"
    assert (stream.num_prompt_tokens, stream.num_tokens) == (3, 4)
    assert len(stream.chunks_s) == 3
    assert list(stream.chunks_s) == sorted(stream.chunks_s)


def test_an_event_arrives_with_its_last_byte() -> None:
    first, second = event(delta(content="a")), event(delta(content="b"))
    whole = chunked(first, second + event(USAGE))
    end_of_first = whole.index(second) - len(b"XX\r\n") - len(b"\r\n")
    cuts = [0, end_of_first - 1, end_of_first, len(whole)]

    stream = read_stream(
        0.0, Arrivals((1.0, 2.0, 3.0), tuple(whole[a:b] for a, b in pairwise(cuts)))
    )

    assert stream.chunks_s == (2.0, 3.0)


def test_it_reads_completions_and_events_in_two_chunks_as_well() -> None:
    text = event({"choices": [{"index": 0, "text": "Hello"}]})
    assert read_stream(0.0, at_once(chunked(text, event(USAGE)))).text == "Hello"

    whole = event(delta(content="long")) + event(USAGE)
    assert read_stream(0.0, at_once(chunked(whole[:20], whole[20:]))).text == "long"


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
        read_stream(0.0, at_once(response))


def test_a_head_contains_the_length_of_the_body() -> None:
    assert Head.of(b"HTTP/1.1 200 OK\r\na: b\r\n") is None
    head = Head.of(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n")

    assert head == Head(status=200, size=39, content_length=12, is_chunked=False)
