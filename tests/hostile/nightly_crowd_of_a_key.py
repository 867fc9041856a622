"""Thirty thousand requests of one key wait within bounds or are refused, and a neighbour is
answered. The test has its own platform, since a web process gives back only a part of the
memory."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Final

import pytest

from tests.hostile.case import CHAT, with_fields
from tests.hostile.conftest import Besieged
from tests.hostile.send import Target
from tests.system.ledger import metric
from vinery_serving.engine.options import EngineOptions

pytestmark = pytest.mark.system

OPTIONS: Final = EngineOptions()
NUM_REQUESTS: Final = 30_000
NUM_CONNECTIONS: Final = 3000  # more than may wait
NUM_OF_AN_ADDRESS: Final = 1900  # the server takes 2,000
# Memory of a web process for a connection, a request and a place in the queue: 55 kB, mostly.
MOST_OF_A_CONNECTION_MB: Final = 0.08
# Long answers, so that waiting requests wait until the end.
LONG: Final = with_fields(CHAT, stream=True, max_tokens=1900, ignore_eos=True)


async def ask_again_until_it_waits(
    target: Target,
    address: str,
    left: Iterator[int],
    statuses: Counter[str],
    may_leave: asyncio.Event,
) -> None:
    """A client that repeats a refused request at once, and stays once the request waits or runs."""
    body = json.dumps(LONG).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {target.api_key}\r\n"
    request = f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    reader, writer = await asyncio.open_connection(*target.address, local_addr=(address, 0))
    try:
        for _ in left:
            writer.write(request.encode() + body)
            fields = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
            status = fields[0].split()[1]
            statuses[status] += 1
            if status == "200":
                await may_leave.wait()
                return
            assert any(each.startswith("retry-after:") for each in fields), fields
            (length,) = [each for each in fields if each.startswith("content-length:")]
            await reader.readexactly(int(length.split()[1]))
    finally:
        writer.close()


async def crowd(besieged: Besieged) -> tuple[Counter[str], float, float]:
    """Returns the answers by status, and while the last requests wait, the number that wait in the
    engine and the greatest growth of a web process in megabytes."""
    addresses = [f"127.0.0.{3 + each // NUM_OF_AN_ADDRESS}" for each in range(NUM_CONNECTIONS)]
    statuses, may_leave, left = Counter[str](), asyncio.Event(), iter(range(NUM_REQUESTS))
    async with asyncio.TaskGroup() as clients:
        for address in addresses:
            asked = ask_again_until_it_waits(besieged.target, address, left, statuses, may_leave)
            clients.create_task(asked)
        while statuses.total() < NUM_REQUESTS:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        num_waiting = await asyncio.to_thread(metric, besieged.running, "vllm:num_requests_waiting")
        grown_mb = besieged.most_grown_mb()
        may_leave.set()
    return statuses, num_waiting, grown_mb


@pytest.mark.timeout(1800)
def test_thirty_thousand_requests_of_one_key_wait_within_bounds_or_are_refused(
    besieged: Besieged,
) -> None:
    begun_s = time.monotonic()

    statuses, num_waiting, grown_mb = asyncio.run(crowd(besieged))

    assert statuses.total() == NUM_REQUESTS
    assert statuses.keys() == {"200", "503"}, statuses
    most = OPTIONS.max_running + OPTIONS.max_waiting_per_key
    assert num_waiting <= most <= statuses["200"], (num_waiting, statuses)
    assert grown_mb < NUM_CONNECTIONS * MOST_OF_A_CONNECTION_MB
    besieged.wait_until_idle()
    besieged.neighbour.wait_for(4, time.monotonic())
    assert besieged.failures_of_neighbour(begun_s) == []
