"""The HTTP client asks many at once and reads what comes back."""

import pytest

from benchmarks.load import Endpoint, ServedModel
from benchmarks.measures import Run
from benchmarks.prompts import Prompt
from benchmarks.wire import BadResponse
from tests.benchmarks.stub_server import StubServer, running

PROMPT = Prompt([{"role": "user", "content": "Hello!"}], [1, 2, 3])


def run(stub: StubServer, num_streams: int, max_tokens: int) -> Run:
    with running(stub), ServedModel(Endpoint(stub.url, "key"), "model") as model:
        return model.run([PROMPT] * num_streams, max_tokens)


def test_it_reads_every_stream_to_its_end() -> None:
    result = run(StubServer(), num_streams=16, max_tokens=9)

    assert [stream.num_tokens for stream in result.streams] == [9] * 16
    assert {stream.text for stream in result.streams} == {" 0 1 2 3 4 5 6 7 8"}
    for stream in result.streams:
        assert len(stream.chunks_s) == 9
        assert stream.started_s <= stream.chunks_s[0]
        assert list(stream.chunks_s) == sorted(stream.chunks_s)
    # The time of the process that listens.
    assert result.web_cpu_s is not None
    assert result.web_cpu_s >= 0


def test_it_counts_tokens_and_not_chunks() -> None:
    result = run(StubServer(tokens_per_chunk=4), num_streams=2, max_tokens=12)

    assert result.num_tokens == 24
    assert {len(stream.chunks_s) for stream in result.streams} == {3}


def test_it_asks_for_greedy_answers_with_usage() -> None:
    stub = StubServer()

    run(stub, num_streams=1, max_tokens=5)

    assert stub.num_connections == 1, "it asks on the connection that was answered before"
    assert stub.bodies == [
        {
            "model": "model",
            "messages": PROMPT.messages,
            "max_tokens": 5,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ]


def test_it_refuses_what_cannot_be_measured() -> None:
    with pytest.raises(BadResponse, match='"message": "no"'):
        run(StubServer(status=429), num_streams=1, max_tokens=2)
    with pytest.raises(BadResponse, match="closed"):
        run(StubServer(breaks_off=True), num_streams=1, max_tokens=2)
    with pytest.raises(ValueError, match="http://HOST:PORT"):
        _ = Endpoint("https://example.org", "key").address
