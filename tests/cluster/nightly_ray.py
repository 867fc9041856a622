"""A real cluster of Ray with three nodes on this machine. It needs `vinery-platform[cluster]`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from tests.conftest import until
from vinery_serving.cluster.placing import Assignment, HostOffer, Placing, Replica

pytest.importorskip("ray", reason="needs vinery-platform[cluster]")

from tests.cluster.own_ray import OwnRay
from vinery_serving.cluster.ray_agent import RayAway, RayPlacer

HOSTS = [HostOffer(id=each, name=each) for each in ("a", "b", "c")]
MIB = 1 << 20
WITHIN_S = 240.0


@pytest.fixture
def ray() -> Iterator[OwnRay]:
    with OwnRay({"a": 4000, "b": 400, "c": 400}) as found:
        yield found


@pytest.fixture
def placer(ray: OwnRay) -> Iterator[RayPlacer]:
    placer = RayPlacer(ray.address)
    placer.connect()
    yield placer
    placer.leave()


def several(number: int, **fields: Any) -> list[Replica]:
    return [Replica(1, each, "CPU", 150 * MIB, **fields) for each in range(number)]


def reported(placing: Placing) -> list[Assignment]:
    return [Assignment(*each, is_ready=True) for each in sorted(placing.assignments)]


def hosts_of(placing: Placing) -> list[str]:
    return [host for _, _, host in sorted(placing.assignments)]


def soon(place: Callable[[], Placing], expected: list[str]) -> Placing:
    """Place again and again, as the agent does."""
    last: list[Placing] = []

    def is_so() -> bool:
        last[:] = [place()]
        return hosts_of(last[0]) == expected

    until(is_so, timeout_s=WITHIN_S)
    return last[0]


def test_replicas_spread_are_pinned_and_wait_for_room(ray: OwnRay, placer: RayPlacer) -> None:
    wanted = several(3)
    placed: list[Placing] = []

    def spread() -> bool:
        placed[:] = [placer.place(wanted, HOSTS, [])]
        return sorted(hosts_of(placed[0])) == ["a", "b", "c"]

    until(spread, timeout_s=WITHIN_S)
    fast = [*HOSTS[:2], replace(HOSTS[2], labels=frozenset({"disk=fast"}))]
    pinned = Replica(2, 0, "CPU", 100 * MIB, labels=frozenset({"disk=fast"}))
    more = soon(
        lambda: placer.place([*wanted, pinned], fast, reported(placed[0])),
        [*hosts_of(placed[0]), "c"],
    )
    large = replace(pinned, model=3, needed_bytes=300 * MIB)
    refused: list[Placing] = []

    def is_refused() -> bool:
        refused[:] = [placer.place([*wanted, pinned, large], fast, reported(more))]
        return 3 in refused[0].refused

    until(is_refused, timeout_s=WITHIN_S)
    assert "c has not 300 MiB of vinery-CPU left in Ray" in refused[0].refused[3].reason

    placer.leave()
    again = RayPlacer(ray.address)
    again.connect()
    assert again.place([*wanted, pinned], fast, reported(more)) == more
    assert not again.place([], fast, []).assignments
    soon(lambda: again.place([pinned], fast, []), ["c"])  # a name of before
    again.leave()


def test_a_replica_of_a_dead_node_stays_until_the_lease_of_its_host_has_ended(
    ray: OwnRay, placer: RayPlacer
) -> None:
    one = several(1)
    first = soon(lambda: placer.place(one, HOSTS[1:2], []), ["b"])
    ray.kill_node("b")
    soon(lambda: placer.place(one, HOSTS, reported(first)), ["b"])
    others = [HOSTS[0], HOSTS[2]]
    moved: list[Placing] = []

    def has_moved() -> bool:
        moved[:] = [placer.place(one, others, reported(first))]
        return bool(moved[0].assignments)

    until(has_moved, timeout_s=WITHIN_S)
    assert hosts_of(moved[0]) in (["a"], ["c"])


def test_nothing_is_placed_without_the_head_and_the_next_head_learns_what_runs(
    ray: OwnRay, placer: RayPlacer
) -> None:
    one = several(1)
    first = soon(lambda: placer.place(one, HOSTS[:1], []), ["a"])
    ray.kill_head()

    def is_away() -> bool:
        with pytest.raises(RayAway, match="does not answer"):
            placer.connect()
        return True

    until(is_away, timeout_s=WITHIN_S)
    with pytest.raises(RayAway, match="refuses"):
        placer.place(one, HOSTS, reported(first))
    ray.start_again()

    def is_back() -> bool:
        with suppress(RayAway):
            placer.connect()
            assert placer.place(one, HOSTS, reported(first)) == first
            return True
        return False

    until(is_back, timeout_s=WITHIN_S)
    full = replace(one[0], model=2, needed_bytes=3900 * MIB)
    refused = soon(lambda: placer.place([*one, full], HOSTS, reported(first)), ["a"])
    until(lambda: placer.place([*one, full], HOSTS, reported(refused)).refused, timeout_s=WITHIN_S)
