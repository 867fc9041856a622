"""The table of connections: which addresses are counted together, and how many there may be."""

import asyncio
import resource
from functools import partial
from ipaddress import ip_network

import pytest

from tests.tables import table
from vinery.process.connections import ConnectionLimits, Connections, descriptor_capacity
from vinery_serving.http.refusals import Reason, Refusals


class _Connection:
    def __init__(self) -> None:
        self.expired: list[Reason] = []
        self.num_aborts = 0

    def expire(self, reason: Reason) -> None:
        self.expired.append(reason)

    def abort(self) -> None:
        self.num_aborts += 1


@table(
    "addresses, num_refused",
    [
        (["192.0.2.1"] * 3, 1),
        (["192.0.2.1", "192.0.2.1", "::ffff:192.0.2.1"], 1),
        (["192.0.2.1", "192.0.2.1", "192.0.2.2"], 0),
        (["2001:db8::1", "2001:db8::2", "2001:db8::3"], 1),  # one client's network
        (["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"], 0),
        (["10.0.0.1"] * 3, 0),  # a proxy
        ([None] * 3, 0),
    ],
)
async def test_addresses_are_counted_by_client(
    addresses: list[str | None], num_refused: int
) -> None:
    limits = ConnectionLimits(max_per_address=2, proxies=(ip_network("10.0.0.0/8"),))
    table = Connections(limits, Refusals())

    refusals = [table.open(_Connection(), address) for address in addresses]

    assert refusals.count(Reason.ADDRESS) == num_refused


def test_a_part_of_the_descriptors_is_for_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    def capacity(soft: int) -> int:
        monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
        return descriptor_capacity()

    assert [capacity(soft) for soft in (64, 316, 1024, 65_536)] == [16, 77, 696, 63_288]
    assert capacity(resource.RLIM_INFINITY) > 100_000


async def test_requests_ahead_of_answers_begin_in_turn_beside_those_of_others() -> None:
    table = Connections(ConnectionLimits(), Refusals())
    begun: list[int] = []
    for number in range(100):
        table.take_turn(partial(begun.append, number))

    seen = []
    while len(begun) < 100:
        await asyncio.sleep(0)  # one pass of the event loop, in which others run, too
        seen.append(len(begun))

    assert begun == list(range(100))
    assert max(after - before for before, after in zip([0, *seen], seen, strict=False)) <= 8
