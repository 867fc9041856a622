"""A tiny streaming server on loopback, scripted: what the client of the benchmark is tried on."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


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
    """The stub in threads."""

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
