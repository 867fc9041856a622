"""The check whether a server is ready."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.platform_ import scripts
from vinery.cli.ready import Readiness, first_model, readiness
from vinery.process.listening import Address, listen


@contextmanager
def server(status: int, body: object) -> Iterator[str]:
    """Yield the URL of a server that gives one answer to every request."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()


@pytest.fixture
def closed_url() -> str:
    with listen(Address("127.0.0.1", 0)) as free:
        return f"http://127.0.0.1:{free.getsockname()[1]}"


@pytest.mark.parametrize(
    ("status", "state"),
    [(200, Readiness.READY), (503, Readiness.LOADING), (500, Readiness.LOADING)],
)
def test_only_200_is_ready(status: int, state: Readiness) -> None:
    with server(status, {}) as url:
        assert readiness(url) is state


def test_a_server_that_does_not_answer_is_not_ready(closed_url: str) -> None:
    assert readiness(closed_url) is Readiness.SILENT


def test_proxies_of_the_environment_are_ignored(
    closed_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", closed_url)

    with server(200, {}) as url:
        assert readiness(url) is Readiness.READY


def test_the_first_model_is_named() -> None:
    with server(200, {"data": [{"id": "one"}, {"id": "two"}]}) as url:
        assert first_model(url, "vny_key") == "one"


@pytest.mark.parametrize(("status", "body"), [(200, {"data": []}), (401, {"error": {}})])
def test_no_model_is_named_if_the_key_may_use_none(status: int, body: object) -> None:
    with server(status, body) as url:
        assert first_model(url, "vny_key") is None


@pytest.mark.parametrize(("status", "exit_status"), [(200, 0), (503, 1)])
def test_the_exit_status_of_the_health_check_is_its_result(status: int, exit_status: int) -> None:
    with server(status, {}) as url:
        result = scripts.vinery("ready", environment={"VINERY_PORT": url.rpartition(":")[2]})

    assert result.returncode == exit_status
    assert url in result.stdout + result.stderr
