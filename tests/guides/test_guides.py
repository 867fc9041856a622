"""The commands and programs of the guides, run beside a platform as a reader would run them, and
their configurations of nginx and Caddy, each in front of it with TLS."""

import os
import re
import runpy
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from tests import forked_commands
from tests.conftest import REPOSITORY, Running, until
from tests.docs.markdown import blocks
from tests.docs.test_guide_files import FILES, metric_names, nginx_configuration
from tests.platform_ import scripts
from tests.system.clients import new_key, platform_with
from tests.system.ledger import metric

GUIDES = REPOSITORY / "docs" / "guides"
# Blocks of `bash` are for every reader as they stand. Other tests run those of these two guides.
OTHERS = ("backup.md", "management-api.md")
RUNNABLE = [
    guide.name
    for guide in sorted(GUIDES.glob("*.md"))
    if guide.name not in OTHERS and any(block.language == "bash" for block in blocks(guide))
]
# Only with Redis.
OF_REDIS = {"vinery_limits_store_away"}


platform = platform_with(VINERY_PUBLIC_URL="https://vinery.example")


# -- Commands and programs


@pytest.fixture(scope="module")
def commands(platform: Running) -> Iterator[str]:
    """The address of a server that runs the command `vinery`, with the words that it is sent."""

    class Commands(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            words = self.rfile.read(int(self.headers["content-length"])).decode().split("\0")[:-1]
            ended = forked_commands.run(*words, environment=platform.environment)
            self.send_response(500 if ended.returncode else 200)
            self.end_headers()
            self.wfile.write((ended.stderr if ended.returncode else ended.stdout).encode())

        def log_message(self, *_: object) -> None:
            """Tests print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Commands) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def shell(
    platform: Running, commands: str, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, str]:
    """The environment of a reader's shell: a home with a model, and the command `vinery`."""
    home = tmp_path_factory.mktemp("reader")
    shutil.copytree(REPOSITORY / "models" / "tiny-chat", home / "models" / "qwen3-0.6b")
    program = home / "vinery"
    send = f"curl -sS --fail-with-body --data-binary @- {commands}"
    program.write_text(f"#!/bin/sh\nprintf '%s\\0' \"$@\" | {send}\n")
    program.chmod(0o755)
    path = f"{home}{os.pathsep}{os.environ['PATH']}"
    own = {"HOME": str(home), "PATH": path, "VINERY_URL": platform.base_url}
    return {**platform.environment, **own}


@pytest.mark.parametrize("name", RUNNABLE)
def test_the_commands_of_a_guide_succeed(name: str, shell: Mapping[str, str]) -> None:
    script = "\n".join(block.text for block in blocks(GUIDES / name) if block.language == "bash")

    ended = scripts.run("bash", "-eu", "-o", "pipefail", "-c", script, environment=shell)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout


@pytest.mark.parametrize(
    ("guide", "client", "words"),
    [
        ("clients.md", "openai.OpenAI(", "Paris"),
        ("clients.md", "openai.AzureOpenAI(", "Paris"),
        ("clients.md", "openai.Client(", "name='Ada' age=36"),
        ("clients.md", "anthropic.Anthropic(", "Paris"),
        ("agents.md", 'name?", previous_response_id', "\n"),  # a small model answers anything
        ("agents.md", "responses.compact(", "compaction"),
    ],
)
def test_a_recipe_of_a_client_answers(
    guide: str,
    client: str,
    words: str,
    platform: Running,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    [program] = [
        block.text
        for block in blocks(GUIDES / guide)
        if block.language == "python" and client in block.text
    ]
    (tmp_path / "recipe.py").write_text(program.replace("qwen3-8b", "tiny-chat"))
    monkeypatch.setenv("OPENAI_BASE_URL", f"{platform.base_url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", platform.api_key)

    runpy.run_path(str(tmp_path / "recipe.py"), run_name="__main__")

    assert words in capsys.readouterr().out


def test_monitoring_names_every_metric_and_dashboard_and_alerts_no_other(platform: Running) -> None:
    page = httpx.get(f"{platform.base_url}/metrics").text
    families = set(re.findall(r"^# TYPE ([\w:]+)", page, re.M))
    own = {name for name in families if name.startswith(("vinery_", "vllm:"))}
    guide = (GUIDES / "monitoring.md").read_text(encoding="utf-8")

    assert len(own) > 30
    assert {name for name in own if f"`{name}`" not in guide} == set()

    named = {re.sub(r"_(bucket|sum|count)$", "", name) for name in metric_names()}

    assert len(named) > 20
    assert named - OF_REDIS - families == set()


# -- Proxies

# More than is generated before a test has looked.
LONG = {"model": "tiny-chat", "prompt": "one two", "max_tokens": 1900, "ignore_eos": True, "n": 2}
SNI = {"sni_hostname": "vinery.example"}


def nginx(folder: Path, port: int, upstream: str) -> list[str]:
    path = nginx_configuration(folder, port=port)
    path.write_text(path.read_text().replace("127.0.0.1:8000", upstream))
    return ["nginx", "-p", str(folder), "-c", str(path)]


def caddy(folder: Path, port: int, upstream: str) -> list[str]:
    site = (FILES / "Caddyfile").read_text().replace("127.0.0.1:8000", upstream)
    site = site.replace("vinery.example {", f"vinery.example:{port} {{\n\ttls internal")
    path = folder / "Caddyfile"
    alone = "admin off\n\tauto_https disable_redirects\n\tskip_install_trust"
    path.write_text(f"{{\n\t{alone}\n\tstorage file_system {folder}\n}}\n{site}")
    return ["caddy", "run", "--config", str(path), "--adapter", "caddyfile"]


@contextmanager
def running(command: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "log").open("wb") as log:
        own = {"PATH": os.environ["PATH"], "HOME": str(folder)}
        proxy = subprocess.Popen(command, stdout=log, stderr=log, env=own)
    try:
        yield proxy
    finally:
        proxy.terminate()
        proxy.wait(60)


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/livez", extensions=SNI).status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture(params=[nginx, caddy], scope="module")
def client(
    request: pytest.FixtureRequest, platform: Running, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    """Of a proxy in front of the platform, which knows it by its public name."""
    program = request.param.__name__
    if shutil.which(program) is None:
        pytest.skip(f"needs {program}")
    folder, upstream = tmp_path_factory.mktemp(program), platform.base_url.removeprefix("http://")
    folder.chmod(0o755)
    headers = {"host": "vinery.example", "authorization": f"Bearer {platform.api_key}"}
    for _ in range(5):  # someone else may have taken the port meanwhile
        with socket.create_server(("127.0.0.1", 0)) as free:
            port: int = free.getsockname()[1]
        url = f"https://127.0.0.1:{port}"
        with (
            running(request.param(folder, port, upstream), folder) as proxy,
            httpx.Client(base_url=url, headers=headers, verify=False, timeout=60) as client,
        ):
            until(lambda: _answers(client) or proxy.poll() is not None, timeout_s=60)
            if proxy.poll() is None:
                yield client
                return
    pytest.fail((folder / "log").read_text())


def test_a_stream_passes_without_being_buffered(client: httpx.Client, platform: Running) -> None:
    body = LONG | {"stream": True}
    with client.stream("POST", "/v1/completions", json=body, extensions=SNI) as answer:
        lines = (line for line in answer.iter_lines() if line.startswith("data: "))
        first = next(lines)  # the answer goes on while this reader of lines is kept
        num_live = metric(platform, "vinery_requests_live")
    short = body | {"max_tokens": 3, "n": 1}
    whole = client.post("/v1/completions", json=short, extensions=SNI).text

    assert first.startswith("data: {")
    assert num_live == 1, "the answer had ended before its first token came"
    assert whole.strip().endswith("data: [DONE]")


def test_no_client_chooses_its_address(client: httpx.Client, platform: Running) -> None:
    for network, status in (("127.0.0.0/8", 200), ("10.0.0.0/8", 403)):
        key = new_key(platform, network, "--network", network)
        headers = {"authorization": f"Bearer {key}", "x-forwarded-for": "10.9.9.9"}
        answer = client.get("/v1/models", headers=headers, extensions=SNI)
        assert answer.status_code == status, network


def test_the_sign_in_page_has_tls_and_metrics_do_not_pass(client: httpx.Client) -> None:
    page = client.get("/accounts/login/", extensions=SNI)

    assert page.status_code == 200
    assert "Secure" in page.headers["set-cookie"]
    assert "max-age=31536000" in page.headers["strict-transport-security"]
    assert client.get("/metrics", extensions=SNI).status_code == 401


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/startupz"])
def test_probes_answer_for_the_address_of_a_pod(platform: Running, path: str) -> None:
    answer = httpx.get(f"{platform.base_url}{path}", headers={"host": "10.42.0.17:8000"})

    assert answer.status_code == 200
