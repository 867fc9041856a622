"""Wrong raw HTTP is refused or the connection is closed, the next client is served, and the log has
no traceback."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest

from tests import prepared_home
from tests.conftest import REPOSITORY, clean_environment, until
from tests.hostile import raw_http
from tests.hostile.raw_http import Answer, Request, in_chunks, with_length

pytestmark = pytest.mark.system

SEED = 11
NUM_MUTATIONS = 400
NUM_PIPELINED = 100
MOST_MEMORY_GROWN = 100e6


@dataclass(frozen=True)
class Server:
    """A web process without an engine."""

    address: tuple[str, int]
    api_key: bytes
    log: Path
    pid: int


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("web")
    home, log = folder / "home", folder / "web.log"
    clean = clean_environment()
    environment = clean | prepared_home.copy_to(home, clean)
    with socket.create_server(("127.0.0.1", 0)) as listener, log.open("wb") as output:
        address = listener.getsockname()
        command = [
            sys.executable,
            "-m",
            "vinery_platform.cli",
            "web",
            "--fd",
            str(listener.fileno()),
        ]
        process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env={**environment, "VINERY_PORT": str(address[1])},
            stdout=output,
            stderr=output,
            pass_fds=[listener.fileno()],
        )
    try:
        until(lambda: is_live(address), timeout_s=60)
        key = json.loads((home / "bootstrap.json").read_text())["api_key"]
        yield Server(address, key.encode(), log, process.pid)
    finally:
        process.terminate()
        process.wait(30)


def is_live(address: tuple[str, int]) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{address[1]}/livez", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def ask(server: Server, *requests: Request) -> list[tuple[Request, Answer]]:
    """Send all requests. Check that each answer is HTTP, that no request makes the server fail, and
    that the next client is served."""
    before = psutil.Process(server.pid).memory_info().rss
    answers = list(zip(requests, raw_http.ask_all(server.address, requests), strict=True))
    for request, answer in answers:
        assert not [status for status in answer.statuses() if status >= 500], (request, answer)
    assert is_live(server.address)
    assert "Traceback" not in server.log.read_text(errors="replace")
    assert psutil.Process(server.pid).memory_info().rss - before < MOST_MEMORY_GROWN
    return answers


def test_right_requests_are_answered_whole_pipelined_and_in_tiny_parts(server: Server) -> None:
    forms = with_length(server.api_key), in_chunks(server.api_key, b"{", b"}")
    answers = ask(server, *(Request("right", [form]) for form in forms))

    assert [answer.statuses() for _, answer in answers] == [[400], [400]]
    assert all(b"messages" in answer.received for _, answer in answers)

    data = b"".join(
        b"GET /v1/models/m%d HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer %b\r\n\r\n"
        % (number, server.api_key)
        for number in range(NUM_PIPELINED)
    )
    ((_, answer),) = ask(server, Request("pipelined", [data]))

    assert answer.statuses() == [404] * NUM_PIPELINED
    starts = [answer.received.index(b"`m%d`" % number) for number in range(NUM_PIPELINED)]
    assert starts == sorted(starts)

    whole = with_length(server.api_key)
    parts = [whole[at : at + 1] for at in range(len(whole))]
    ((_, answer),) = ask(server, Request("byte by byte", parts))

    assert answer.statuses() == [400]

    anonymous = with_length(b"vny_live_unknown")
    ask(server, *(Request("leaves", [anonymous], closes=True) for _ in range(50)))
    ask(server, Request("livez", [raw_http.LIVEZ]))


def test_odd_truncated_and_mutated_requests_are_answered_or_refused(server: Server) -> None:
    answers = ask(server, *raw_http.tolerated(server.api_key))

    assert [request.name for request, answer in answers if answer == Answer(b"", False)] == []

    for request, answer in ask(server, *raw_http.truncated(server.api_key)):
        assert set(answer.statuses()) <= {400, 408}, (request, answer)

    ask(server, *raw_http.mutated(server.api_key, SEED, NUM_MUTATIONS))
