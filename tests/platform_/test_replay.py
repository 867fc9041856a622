"""The texts of a response, and a body that is edited and sent again."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.platform_ import scripts
from tests.tables import table
from vinery_platform.cli.replay import edited, error_message, send, texts_of
from vinery_platform.cli.shape import Failure
from vinery_platform.config.home import Home

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "protocols"
PAIRS = sorted(path.stem for path in GOLDEN.glob("*.sse") if path.with_suffix(".json").exists())


@table("name", PAIRS)
def test_a_stream_has_the_same_texts_as_the_whole_answer(name: str) -> None:
    streamed, whole = (texts_of((GOLDEN / f"{name}.{of}").read_bytes()) for of in ("sse", "json"))
    assert whole == streamed
    assert whole


def test_each_text_has_a_name_and_a_truncated_response_those_that_it_has() -> None:
    def names(file: str) -> set[str]:
        return set(texts_of((GOLDEN / file).read_bytes()))

    assert names("chat_two_calls.json") >= {"choice 0, call 0", "choice 0, call 1"}
    assert names("completions_two_choices.sse") == {"choice 0", "choice 1"}
    for protocol in ("chat", "completions", "responses", "messages"):
        assert "error" in names(f"{protocol}_failure.sse")

    stream = (GOLDEN / "responses_plain.sse").read_bytes()
    whole = "".join(texts_of(stream).values())
    assert "".join(texts_of(stream[: stream.index(b"response.output_text.done")]).values()) == whole
    for answer in (b"", b"\xff", b"[1]", b"data: {", b'{"choices": []}'):
        assert texts_of(answer) == {}


@table(
    "path, value, expected",
    [
        ("temperature", 0, {"temperature": 0}),
        ("messages.1.content", "b", {"messages": [{"content": "x"}, {"content": "b"}]}),
        ("messages.0", {}, {"messages": [{}, {"content": "y"}]}),
        ("response_format.type", "text", {"response_format": {"type": "text"}}),
    ],
)
def test_values_are_set_at_dotted_paths(path: str, value: Any, expected: dict[str, Any]) -> None:
    body: dict[str, Any] = {"messages": [{"content": "x"}, {"content": "y"}], "n": 1}
    assert json.loads(edited(json.dumps(body).encode(), [(path, value)])) == body | expected


def test_a_body_without_edits_is_sent_as_it_was_and_no_edit_has_an_unknown_path() -> None:
    assert edited(b'{"a":1, "a":2', []) == b'{"a":1, "a":2'
    with pytest.raises(Failure, match="not JSON"):
        edited(b'{"a":1', [("a", 1)])
    for path in ("messages.2", "messages.x.y", "n.x", "messages.-1"):
        with pytest.raises(Failure, match="does not exist"):
            edited(b'{"messages": [1, 2], "n": 1}', [(path, 0)])


class _Server(BaseHTTPRequestHandler):
    """Redirects one path, and returns the key of each request."""

    asked: list[str] = []

    def do_POST(self) -> None:
        self.asked.append(self.path)
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(302 if self.path == "/redirect" else 200)
        self.send_header("location", "/elsewhere")
        self.send_header("x-request-id", "req_1")
        self.end_headers()
        self.wfile.write(self.headers["authorization"].encode())

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def test_a_request_follows_no_proxy_and_no_redirect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with HTTPServer(("127.0.0.1", 0), _Server) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        assert send(f"{url}/x", b"{}", "k", 5) == (200, "req_1", b"Bearer k")
        response = send(f"{url}/redirect", b"{}", "k", 5)
        server.shutdown()
    assert response.status == 302
    assert "/elsewhere" not in _Server.asked
    assert "not from a Vinery server" in error_message(response)

    for url in ("http://127.0.0.1:9/v1", "nowhere"):
        with pytest.raises(Failure, match="does not answer"):
            send(url, b"{}", "k", 5)


def test_a_missing_key_is_reported(platform_home: Home) -> None:
    (platform_home.path / "vinery.sqlite3").touch()
    environment = {"VINERY_HOME": str(platform_home.path)}

    assert "VINERY_API_KEY" in scripts.refusal("replay", "req_1", environment=environment, status=1)
