"""The check whether a server is ready, and the banner after it."""

import asyncio
import io
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from unittest import mock

import pytest

from tests.platform_ import scripts
from tests.tables import table
from vinery.cli import up, wait
from vinery.cli.ready import Readiness, models_for, readiness
from vinery.config import credentials
from vinery.config.credentials import Credentials
from vinery.config.home import Home
from vinery.process import running_server
from vinery.process.listening import Address, listen
from vinery.process.supervisor import Supervisor

_MODELS = {"data": [{"id": "one"}, {"id": "two"}]}


@contextmanager
def server(
    status: int, body: object, *, num_silent: int = 0, content_length: int | None = None
) -> Iterator[str]:
    """Yield the URL of a server that gives one answer to every request.

    It does not answer the first `num_silent` requests for the list of models.
    """
    silent = iter(range(num_silent))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/v1/models" and next(silent, None) is not None:
                return
            self.send_response(status)
            if content_length is not None:
                self.send_header("Content-Length", str(content_length))
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()


@pytest.fixture
def closed_url() -> str:
    with listen(Address("127.0.0.1", 0)) as free:
        return f"http://127.0.0.1:{free.getsockname()[1]}"


@table(
    "status, state", [(200, Readiness.READY), (503, Readiness.LOADING), (500, Readiness.LOADING)]
)
def test_only_200_is_ready(
    closed_url: str, monkeypatch: pytest.MonkeyPatch, status: int, state: Readiness
) -> None:
    monkeypatch.setenv("http_proxy", closed_url)  # which is ignored
    with server(status, {}) as url:
        assert readiness(url) is state


def test_a_server_that_does_not_answer_or_breaks_off_is_not_ready(closed_url: str) -> None:
    """The supervisor asks while web processes start and end, and must go on."""
    assert readiness(closed_url) is Readiness.SILENT
    with server(503, {}, content_length=100) as url:
        assert readiness(url) is Readiness.SILENT


@pytest.mark.parametrize(
    ("status", "body", "models"),
    [
        (200, _MODELS, ["one", "two"]),
        (200, {"data": []}, []),
        (401, {"error": {}}, []),
        (503, {"error": {}}, None),  # it does not count as a server without models
    ],
)
def test_the_models_of_a_key_are_named(status: int, body: object, models: list[str] | None) -> None:
    with server(status, body) as url:
        assert models_for("vny_key", url) == models


@pytest.mark.parametrize(("status", "exit_status"), [(200, 0), (503, 1)])
def test_the_exit_status_of_the_health_check_is_its_result(status: int, exit_status: int) -> None:
    with server(status, {}) as url:
        result = scripts.vinery("ready", environment={"VINERY_PORT": url.rpartition(":")[2]})

    assert result.returncode == exit_status
    assert url in result.stdout + result.stderr


def test_the_health_check_asks_the_server_that_runs_with_the_home(
    tmp_path: Path, closed_url: str
) -> None:
    """Another port may be in use than the configured one, such as a free one for VINERY_PORT=0."""
    home = Home(tmp_path / "home")
    home.create()
    settings = {"VINERY_HOME": str(home.path), "VINERY_PORT": closed_url.rpartition(":")[2]}

    with server(200, {}) as url, home.locked():
        running_server.write(home, url, "1.0")
        result = scripts.vinery("ready", environment=settings)

    assert result.stdout == f"{url} is ready.\n"
    assert result.returncode == 0


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    """Return what `vinery wait --example` prints about the server of a URL."""

    def printed(url: str) -> str:
        home = Home(tmp_path)
        monkeypatch.setenv("VINERY_HOME", str(home.path))
        monkeypatch.setenv("VINERY_PORT", url.rpartition(":")[2])
        credentials.write(home.bootstrap_file, Credentials(url, "vny_key", "admin", "pa55word"))
        wait._print_example()
        return capsys.readouterr().out

    return printed


Example = Callable[[str], str]


def test_the_example_waits_for_the_models_of_a_busy_server(example: Example) -> None:
    with server(200, _MODELS, num_silent=2) as url:
        assert wait.curl_line(url, "vny_key", "one") in example(url)


@pytest.mark.parametrize(
    ("models", "within_s"),
    [({"data": []}, float("inf")), (_MODELS, 0.0)],
    ids=["the key may use none", "no answer comes in time"],
)
def test_there_is_no_example_without_a_model(
    example: Example, monkeypatch: pytest.MonkeyPatch, models: object, within_s: float
) -> None:
    monkeypatch.setattr(wait, "_EXAMPLE_WITHIN_S", within_s)

    with server(200, models, num_silent=2) as url:
        assert example(url) == ""


def greeting_of(url: str, folder: Path, *, is_terminal: bool) -> str:
    """Return what a start prints when the server of this URL answers."""
    home = Home(folder)
    home.create()
    plan = up.Plan(home, Address("127.0.0.1", int(url.rpartition(":")[2])), 1)
    credentials.write(home.bootstrap_file, Credentials(url, "vny_key", "admin", "pa55word"))
    noted = running_server.write(home, url, "1.0")
    supervisor, output = Supervisor({}), io.StringIO()
    with (
        mock.patch.object(sys, "stdout", output),
        mock.patch.object(output, "isatty", lambda: is_terminal),
        mock.patch.object(supervisor, "run_once", mock.AsyncMock()) as run_once,
    ):
        asyncio.run(up._greet(plan, noted, supervisor, is_first_start=False))
    assert [each.args[0].argv[3:] for each in run_once.await_args_list] == [("wait", "--example")]
    return output.getvalue()


@pytest.mark.parametrize(("status", "is_terminal"), [(200, True), (503, True), (200, False)])
def test_addresses_are_printed_and_a_terminal_shows_the_key(
    tmp_path: Path, status: int, is_terminal: bool
) -> None:
    with server(status, _MODELS) as url:
        printed = greeting_of(url, tmp_path, is_terminal=is_terminal)

    assert f"{url}/console/" in printed
    assert ("vny_key" in printed) is is_terminal
    assert is_terminal or str(tmp_path / "bootstrap.json") in printed
