"""The agent of Ray and its lock, on PostgreSQL. Ray itself is in `nightly_ray.py`."""

import socket
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import OperationalError

from tests.conftest import until
from vinery_platform.cli import status
from vinery_serving.cluster import lease, ray_agent
from vinery_serving.cluster.lease import AgentLease, HostLease
from vinery_serving.cluster.placing import Assignment, HostOffer, Placing, Replica
from vinery_serving.cluster.ray_agent import RayAway, RayPlacer
from vinery_serving.models.host_rows import Host, Placement
from vinery_serving.models.models import ServedModel

pytestmark = [
    pytest.mark.stores,
    pytest.mark.several_hosts,
    pytest.mark.django_db(transaction=True),
]
MOON = UUID(int=5)


class FakePlacer:
    """Places all on the first host, or is without Ray."""

    is_away = False
    is_connected = False

    def look(self) -> None:
        if self.is_away:
            self.is_connected = False
            raise RayAway("Ray's head does not answer")

    def connect(self) -> None:
        self.look()
        self.is_connected = True

    def leave(self) -> None:
        self.is_connected = False

    def place(
        self,
        wanted: Collection[Replica],
        hosts: Collection[HostOffer],
        present: Collection[Assignment],
    ) -> Placing:
        [host] = hosts
        return Placing(frozenset((each.model, each.number, host.id) for each in wanted), {})


@pytest.fixture
def leases(settings: Any) -> Iterator[tuple[AgentLease, AgentLease]]:
    settings.VINERY_RAY_ADDRESS = "10.0.0.5:6379"
    found = AgentLease("moon"), AgentLease("mars")
    host = HostLease(MOON.int, "vinery node on moon")
    host.renew()
    Host.objects.create(pk=MOON, name="moon", devices={"CPU": None})
    yield found
    for each in (*found, host):
        each.close()


def placed() -> list[str]:
    return list(Placement.objects.values_list("host__name", flat=True))


def test_one_agent_places_and_the_next_one_takes_over_without_a_second_placing(
    leases: tuple[AgentLease, AgentLease], tmp_path: Path
) -> None:
    acting, waiting = leases
    first, second = FakePlacer(), FakePlacer()
    ServedModel.objects.create(name="m", folder=str(tmp_path))
    ray_agent.turn(acting, first)
    ray_agent.turn(waiting, second)
    assert placed() == ["moon"]
    assert (first.is_connected, second.is_connected) == (True, False)

    former = Placement.objects.get()
    acting.close()  # it was killed

    def takes_over() -> bool:
        ray_agent.turn(waiting, second)
        return second.is_connected

    until(takes_over)  # PostgreSQL notices the end of a session a little later
    assert Placement.objects.get() == former
    ray_agent.turn(acting, first)
    assert not first.is_connected, "an agent that was replaced leaves Ray"


def test_an_agent_that_does_not_reach_ray_lets_another_one_act(
    leases: tuple[AgentLease, AgentLease], monkeypatch: pytest.MonkeyPatch
) -> None:
    (cut_off, waiting), first, second = leases, FakePlacer(), FakePlacer()
    monkeypatch.setitem(waiting._numbers, "lease_s", 0.5)
    ray_agent.turn(cut_off, first)
    ray_agent.turn(waiting, second)
    first.is_away = True

    def takes_over() -> bool:
        with pytest.raises(RayAway):
            ray_agent.turn(cut_off, first)
        ray_agent.turn(waiting, second)
        return second.is_connected

    until(takes_over)
    assert "by Ray" in status._placement()["placement"]
    first.is_away = False
    with pytest.raises(OperationalError):
        ray_agent.turn(cut_off, first)  # its session was ended
    ray_agent.turn(cut_off, first)
    assert not first.is_connected, "it waits now"


def test_without_ray_nothing_changes_and_every_host_can_read_it(
    leases: tuple[AgentLease, AgentLease], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "no agent runs" in status._placement()["placement"]
    agent, placer = leases[0], FakePlacer()
    model = ServedModel.objects.create(name="m", folder=str(tmp_path))
    ray_agent.turn(agent, placer)
    assert "10.0.0.5:6379" in status._placement()["placement"]

    placer.is_away = True
    model.delete()
    ServedModel.objects.create(name="n", folder=str(tmp_path))
    for _ in range(2):
        with pytest.raises(RayAway, match="does not answer"):
            ray_agent.turn(agent, placer)
    assert not Placement.objects.exists()
    with monkeypatch.context() as patch:
        patch.setattr(lease, "LEASE_S", 0.0)
        assert status._placement()["placement"] == (
            "nothing new: agents run on moon, but none reaches Ray: see their logs"
        )
    placer.is_away = False
    ray_agent.turn(agent, placer)
    assert placed() == ["moon"]
    assert "by Ray" in status._placement()["placement"]


def test_a_closed_port_and_a_missing_package_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with socket.create_server(("127.0.0.1", 0)) as head:
        address = f"127.0.0.1:{head.getsockname()[1]}"
        with pytest.raises(RayAway, match="refuses"):
            RayPlacer(address).connect()
    with pytest.raises(RayAway, match=f"{address} does not answer"):
        RayPlacer(address).connect()
