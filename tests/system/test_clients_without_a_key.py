"""What clients without a key can do to the whole platform: little that others notice."""

import asyncio
import re
import socket
import struct
from collections import Counter

import httpx
import pytest

from tests.conftest import Running, until
from tests.system.clients import connect, head

pytestmark = pytest.mark.system

_NUM_PAGES = 150


async def pages(running: Running) -> list[tuple[int, bool]]:
    """The status of many login pages at once, and whether each has `Retry-After`."""
    url = httpx.URL(running.base_url)
    request = head(running, "GET /accounts/login/", "connection: close")

    async def page() -> tuple[int, bool]:
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(request)
        answer = await reader.read()
        writer.close()
        return int(answer.split(b" ", 2)[1]), b"retry-after" in answer.lower()

    return await asyncio.gather(*(page() for _ in range(_NUM_PAGES)))


def test_many_pages_at_once_are_answered_by_few_threads(running: Running) -> None:
    httpx.get(f"{running.base_url}/accounts/login/")
    before = sum(process.num_threads() for process in running.processes("web"))
    found = asyncio.run(pages(running))
    after = sum(process.num_threads() for process in running.processes("web"))

    statuses = Counter(status for status, _ in found)
    assert set(statuses) <= {200, 503}
    assert statuses[200] >= 50
    assert all(has_retry_after for status, has_retry_after in found if status == 503)
    # Each page has a thread, and a second one that waits for its end.
    assert after - before <= 8 * len(running.pids("web"))


def test_clients_that_leave_before_their_answer_leave_no_traceback(running: Running) -> None:
    before = len(running.log.read_text(encoding="utf-8"))
    requests = [
        head(running, "POST /v1/chat/completions", "content-length: 2") + b"{}",
        head(running, "POST /v1/chat/completions", "content-length: 2"),
        head(running, "GET /v1/models") * 3,
        head(running, "GET /accounts/login/"),
        head(running, "GET /livez"),
    ]
    for number in range(100):
        with connect(running) as connection:
            # With this option `close` resets the connection.
            linger = struct.pack("ii", 1, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            connection.sendall(requests[number % len(requests)])
    assert httpx.get(f"{running.base_url}/v1/models").status_code == 401
    until(lambda: httpx.get(f"{running.base_url}/accounts/login/").status_code == 200)

    log = running.log.read_text(encoding="utf-8")[before:]
    assert not re.findall(r"(?m)^.* ERROR .*$", log)
