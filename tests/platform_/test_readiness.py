"""Whether a server is ready, and what `vinery wait` and the banner after it print."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from django.utils import timezone

from tests.conftest import REPOSITORY
from tests.platform_ import scripts
from vinery_platform.cli import commands, wait
from vinery_platform.cli.ready import health
from vinery_platform.config.home import Home, RunningServer
from vinery_serving.models.engine_status import EngineState, EngineStatus
from vinery_serving.models.models import ServedModel


@contextmanager
def server(status: int, *, content_length: int | None = None) -> Iterator[str]:
    """Yield the URL of a server that gives one answer to every request."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            if content_length is not None:
                self.send_header("Content-Length", str(content_length))
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()


@pytest.fixture
def closed_url() -> Iterator[str]:
    """Of a port on which no process listens, and which no other can take."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def test_only_200_is_ready(closed_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor asks while web processes start and end, and must go on."""
    monkeypatch.setenv("http_proxy", closed_url)  # which is ignored
    for status in (200, 503, 500):
        with server(status) as url:
            assert health(url) == {"is_ready": status == 200}

    assert health(closed_url) is None
    with server(503, content_length=100) as url:
        assert health(url) is None


@pytest.mark.parametrize(("status", "exit_status"), [(200, 0), (503, 1)])
def test_the_exit_status_of_the_health_check_is_its_result(
    status: int, exit_status: int, tmp_path: Path
) -> None:
    settings = {"VINERY_HOME": str(tmp_path)}  # a server may run in the home of the clone
    with server(status) as url:
        port = url.rpartition(":")[2]
        result = scripts.vinery("ready", environment=settings | {"VINERY_PORT": port})

    assert result.returncode == exit_status
    assert url in result.stdout + result.stderr


def test_the_health_check_asks_the_server_of_the_home(tmp_path: Path, closed_url: str) -> None:
    """Another port may be in use than the configured one, such as a free one for VINERY_PORT=0."""
    home = Home(tmp_path / "home")
    home.create()
    settings = {"VINERY_HOME": str(home.path), "VINERY_PORT": closed_url.rpartition(":")[2]}

    with server(200) as url, home.locked():
        RunningServer.write(home, url, "1.0")
        result = scripts.vinery("ready", environment=settings)

    assert result.stdout == f"{url} is ready.\n"
    assert result.returncode == 0


FOLDER = REPOSITORY / "models" / "tiny-chat"


def serve(name: str, state: str, error: str = "", *, is_loaded: bool = True) -> None:
    """Serve a model in a state, without a node."""
    model = ServedModel.objects.create(name=name, folder=str(FOLDER), is_loaded=is_loaded)
    EngineStatus.objects.create(model=model, state=state, last_error=error)
    long_ago = timezone.now() - timedelta(minutes=5)
    EngineStatus.objects.filter(model=model).update(changed_at=long_ago)
    ServedModel.objects.filter(pk=model.pk).update(updated_at=long_ago)  # no change since


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    monkeypatch.setattr(wait, "_POLL_S", 0.01)

    def run_wait(*words: str) -> tuple[int, list[str]]:
        arguments = commands.parser("wait").parse_args(["wait", *words])
        return arguments.run(arguments), capsys.readouterr().out.splitlines()

    return run_wait


Run = Callable[..., tuple[int, list[str]]]


@pytest.mark.django_db
def test_ready_and_failed_models_end_the_wait(run: Run) -> None:
    serve("good", EngineState.READY)
    assert run() == (0, ["good: ready"])

    serve("bad", EngineState.FAILED, "The weights do not fit.\n\nException from core.cpp")
    assert run() == (1, ["bad: failed: The weights do not fit.", "good: ready"])
    assert run("good") == (0, ["good: ready"])


@pytest.mark.django_db
def test_a_model_that_does_not_get_ready_ends_the_wait_too(run: Run) -> None:
    serve("slow", EngineState.LOADING)

    status, lines = run("--timeout", "1")

    assert status == 1
    assert lines[0] == "slow: loading"
    assert lines[-1].startswith("slow: not ready after 1 s. It goes on; see: ")


@pytest.mark.django_db
def test_without_a_model_that_gets_ready_it_shows_what_to_do(run: Run) -> None:
    status, [line] = run()
    assert status == 0
    assert line.startswith("No model is served yet. Add one: ")
    assert line.endswith("vinery model add FOLDER --name NAME")

    serve("idle", EngineState.UNLOADED, is_loaded=False)
    status, [line] = run()
    assert line.endswith("vinery model load NAME")
    with pytest.raises(wait.Failure, match="No model is served as none"):
        run("none")
    with pytest.raises(wait.Failure, match="idle is not loaded"):
        run("idle")
