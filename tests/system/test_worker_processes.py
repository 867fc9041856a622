"""Large requests are read in processes that end with their clients and with the platform."""

from __future__ import annotations

import contextlib
import json

import httpx
import psutil
import pytest

from tests.conftest import Running, until
from tests.system.clients import bearer
from tests.system.ledger import labelled, metric

pytestmark = pytest.mark.system

# Tokenizing it takes seconds.
LONG_TEXT = "ab " * 1_300_000


def post(running: Running, body: object, *, timeout_s: float = 60) -> httpx.Response:
    return httpx.post(
        f"{running.base_url}/tokenize",
        headers=bearer(running),
        content=json.dumps(body),
        timeout=timeout_s,
    )


def fork_servers(running: Running) -> list[psutil.Process]:
    """One for each web process, once it has read a request that takes long."""
    children = [child for web in running.processes("web") for child in web.children()]
    return [each for each in children if "vinery_serving.workers" in " ".join(each.cmdline())]


def asked(running: Running) -> int:
    """The status of an answer that a worker process gives."""
    return post(running, {"prompt": "Hi there" * 2000}).status_code


def test_seven_clients_that_leave_take_their_work_along(running: Running) -> None:
    for _ in range(7):
        with contextlib.suppress(httpx.TimeoutException):
            post(running, {"prompt": LONG_TEXT}, timeout_s=0.2)

    until(
        lambda: metric(running, "vinery_work_running") + metric(running, "vinery_work_waiting") == 0
    )
    num_done = labelled(running, "vinery_work_total", kind="tokens")
    assert num_done + metric(running, "vinery_work_killed_total") > 0
    assert asked(running) == 200


# That a killed one is replaced: tests/workers/test_pool.py
def test_the_fork_server_has_no_secret(running: Running) -> None:
    servers = fork_servers(running)

    assert servers
    for server in servers:
        assert not [
            name for name in server.environ() if name.startswith(("VINERY", "DATABASE", "REDIS"))
        ]
        assert "secrets" not in " ".join(server.cmdline())
        assert not [each for each in server.open_files() if "sqlite" in each.path]
