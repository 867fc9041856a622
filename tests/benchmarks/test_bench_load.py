"""The HTTP client asks many at once and reads what comes back, with the time of each event."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.load import Arrivals, BadResponse, Endpoint, ServedModel, read_stream
from benchmarks.measures import Run
from benchmarks.prompts import Prompt
from tests.tables import table


@dataclass
class StubServer:
    """Answers each request with `max_tokens` words, `tokens_per_chunk` in one event."""

    tokens_per_chunk: int = 1
    status: int = 200
    breaks_off: bool = False
    bodies: list[dict[str, Any]] = field(default_factory=list)
    num_connections: int = 0
    url: str = ""

    def events(self, num_tokens: int) -> Iterator[str]:
        yield json.dumps({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        words = [f" {number}" for number in range(num_tokens)]
        for start in range(0, num_tokens, self.tokens_per_chunk):
            text = "".join(words[start : start + self.tokens_per_chunk])
            yield json.dumps({"choices": [{"delta": {"content": text}}]})
        if not self.breaks_off:
            usage = {"prompt_tokens": 7, "completion_tokens": num_tokens}
            yield json.dumps({"choices": [], "usage": usage})
            yield "[DONE]"


@contextmanager
def running(stub: StubServer) -> Iterator[StubServer]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            stub.num_connections += 1
            super().setup()

        def do_GET(self) -> None:
            self._answer(200, b"ok")

        def do_POST(self) -> None:
            stub.bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            if stub.status != 200:
                self._answer(stub.status, b'{"error": {"message": "no"}}')
                return
            self.send_response(200)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for event in stub.events(stub.bodies[-1]["max_tokens"]):
                content = f"data: {event}\n\n".encode()
                self.wfile.write(b"%x\r\n%b\r\n" % (len(content), content))
            if not stub.breaks_off:
                self.wfile.write(b"0\r\n\r\n")
            self.close_connection = stub.breaks_off

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        stub.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield stub
        server.shutdown()


PROMPT = Prompt([{"role": "user", "content": "Hello!"}], [1, 2, 3])


def run(stub: StubServer, num_streams: int, max_tokens: int) -> Run:
    with running(stub), ServedModel(Endpoint(stub.url, "key"), "model") as model:
        return model.run([PROMPT] * num_streams, max_tokens)


def test_it_reads_every_stream_to_its_end_and_counts_tokens_and_not_chunks() -> None:
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

    result = run(StubServer(tokens_per_chunk=4), num_streams=2, max_tokens=12)
    assert result.num_tokens == 24
    assert {len(stream.chunks_s) for stream in result.streams} == {3}


def test_it_asks_for_greedy_answers_with_usage_and_refuses_what_cannot_be_measured() -> None:
    stub = StubServer()

    run(stub, num_streams=1, max_tokens=5)
    assert stub.num_connections == 1, "it asks on the connection that was answered before"
    body = {"model": "model", "messages": PROMPT.messages, "max_tokens": 5, "temperature": 0}
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    assert stub.bodies == [body]

    with pytest.raises(BadResponse, match='"message": "no"'):
        run(StubServer(status=429), num_streams=1, max_tokens=2)
    with pytest.raises(BadResponse, match="closed"):
        run(StubServer(breaks_off=True), num_streams=1, max_tokens=2)
    with pytest.raises(ValueError, match="http://HOST:PORT"):
        _ = Endpoint("https://example.org", "key").address


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
