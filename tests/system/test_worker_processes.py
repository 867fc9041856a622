"""Large requests are read in processes that end with their clients and with the platform."""

from contextlib import suppress

import httpx
import psutil

from tests.conftest import Running, until
from tests.system.clients import http_of, post
from tests.system.ledger import labelled, metric

# Tokenizing it takes seconds.
LONG_TEXT = "ab " * 1_300_000


def fork_servers(running: Running) -> list[psutil.Process]:
    """A fork server for each web process that has read a request that takes long."""
    children = [child for web in running.processes("web") for child in web.children()]
    module = "vinery_serving.gateway.workers"
    return [each for each in children if module in " ".join(each.cmdline())]


def test_clients_that_leave_take_work_along_and_fork_servers_no_secret(running: Running) -> None:
    for _ in range(7):
        with suppress(httpx.TimeoutException), http_of(running) as client:
            client.post("/tokenize", json={"prompt": LONG_TEXT}, timeout=0.2)

    names = ("vinery_work_running", "vinery_work_waiting")
    until(lambda: not any(metric(running, name) for name in names))
    num_done = labelled(running, "vinery_work_total", kind="tokens")
    assert num_done + metric(running, "vinery_work_killed_total") > 0
    assert post(running, "/tokenize", {"prompt": "Hi there" * 2000}).status_code == 200

    # That a killed one is replaced: tests/gateway/workers/test_pool.py
    servers = fork_servers(running)

    assert servers
    for server in servers:
        own = ("VINERY", "DATABASE", "REDIS")
        assert not [name for name in server.environ() if name.startswith(own)]
        assert "secrets" not in " ".join(server.cmdline())
        assert not [each for each in server.open_files() if "sqlite" in each.path]
