"""A real HTTP server on this machine that keeps each received request."""

import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Receiver:
    """Answers with the statuses in order, and then repeats the last one."""

    port: int = 0
    statuses: list[int] = field(default_factory=lambda: [204])
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    location: str = ""
    # While the event is cleared, a request is kept but gets no answer.
    may_answer: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?from=vinery"


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()
    receiver.may_answer.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            receiver.requests.append((self.path, headers, body))
            receiver.may_answer.wait()
            with contextlib.suppress(OSError):  # the client has disconnected
                self.answer()

        def answer(self) -> None:
            status = receiver.statuses[0]
            if len(receiver.statuses) > 1:
                receiver.statuses.pop(0)
            self.send_response(status)
            if receiver.location:
                self.send_header("location", receiver.location)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.may_answer.set()
        server.shutdown()
        thread.join()
        server.server_close()
