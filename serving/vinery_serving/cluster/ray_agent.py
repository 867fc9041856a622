"""The agent of Ray: the only process of an installation that Ray knows, and that imports Ray.

Each host has an agent, and the one that holds the agents' lock acts. It writes placements, and the
nodes carry them out. It may end at any time: placements are rows, and groups outlive their maker.
While Ray's head is away, nothing new is placed. Ray ends a process that asks a head which has been
gone for a minute, so the agent leaves Ray before.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

from django.conf import settings
from django.db import DatabaseError

from vinery_accounts.base.connections import giving_back
from vinery_serving.cluster import places, ray_placing
from vinery_serving.cluster.lease import RENEW_S, AgentLease
from vinery_serving.cluster.placing import Assignment, HostOffer, Placing, Replica
from vinery_serving.cluster.ray_placing import Group

log = logging.getLogger(__name__)

# The label of a Ray node with the id of its host.
HOST_LABEL: Final = "vinery-host"
# A call to a head that stands still does not return. Then the process ends, and is started again.
_CAUGHT_AFTER_S: Final = 120
_HEAD_ANSWERS_S: Final = 1.0
# How long a new group is waited for, and between looks.
_DECIDE_S: Final = 1.0
_LOOK_S: Final = 0.02
_STUCK: Final = frozenset({"NO_RESOURCES", "INFEASIBLE"})


class RayAway(Exception):
    """The message says why nothing can be placed."""


def run() -> None:
    """Place until the process is ended."""
    placer, lease = RayPlacer(settings.VINERY_RAY_ADDRESS), AgentLease(settings.VINERY_HOST_NAME)
    problem = ""
    while True:
        signal.alarm(_CAUGHT_AFTER_S)
        former, problem = problem, ""
        try:
            giving_back(turn)(lease, placer)
        except (RayAway, DatabaseError) as error:
            problem = " ".join(str(error).split())
        if problem != former:
            log.warning("nothing new is placed: %s", problem) if problem else log.info("Ray places")
        time.sleep(RENEW_S)


def turn(lease: AgentLease, placer: RayPlacer) -> None:
    """Place, unless another agent acts. An agent that does not reach Ray lets its lease grow old,
    so that another one takes it. Raises `RayAway` and `django.db.Error`."""
    is_away = True
    try:
        if lease.is_open:
            placer.look()
        if lease.renew().other_holder:
            placer.leave()
            placer.look()
        else:
            placer.connect()
            lease.renew()  # connecting may have taken longer than leases last
            places.place(lease, placer.place)
        is_away = False
    finally:
        lease.tell(is_away=is_away)


class RayPlacer:
    """The placer that asks Ray, and the placement groups of its cluster."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._ray: Any = None  # while this process is connected
        self._groups: Any = None
        self._hosts: Mapping[str, str] = {}  # by the id of a Ray node

    def look(self) -> None:
        """Leave Ray if its head does not answer. Raises `RayAway`."""
        host, _, port = self._address.rpartition(":")
        with self._leaving_on_errors("does not answer"):
            socket.create_connection((host.strip("[]"), int(port)), _HEAD_ANSWERS_S).close()

    def connect(self) -> None:
        """May take a minute. Raises `RayAway`."""
        self.look()
        if self._ray is not None:
            return
        with self._leaving_on_errors("refuses"):
            self._ray = import_module("ray")
            # As an attribute of its package, the module is hidden by a function of its name.
            self._groups = import_module("ray.util.placement_group")
            words = {"log_to_driver": False, "configure_logging": False}
            self._ray.init(address=self._address, namespace="vinery", **words)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # Ray's own waits for the head

    def leave(self) -> None:
        ray, self._ray = self._ray, None
        if ray is not None:
            ray.shutdown()

    def place(
        self,
        wanted: Collection[Replica],
        hosts: Collection[HostOffer],
        present: Collection[Assignment],
    ) -> Placing:
        """Raises `RayAway`."""
        with self._leaving_on_errors("refuses"):
            return ray_placing.place(self, wanted, hosts, present)

    @contextlib.contextmanager
    def _leaving_on_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # Ray's own have no common class
            self.leave()
            text = str(error).strip().partition("\n")[0]
            raise RayAway(f"Ray's head at {self._address} {what}: {text}") from error

    @property
    def hosts(self) -> Collection[str]:
        return self._hosts.values()

    def all(self) -> list[Group]:
        nodes = [each for each in self._ray.nodes() if each["Alive"]]
        self._hosts = {each["NodeID"]: each["Labels"].get(HOST_LABEL, "") for each in nodes}
        rows = self._groups.placement_group_table().values()
        return [self._group(each) for each in rows if each["state"] != "REMOVED"]

    def create(self, name: str, bundle: tuple[str, int], hosts: Sequence[str]) -> Group:
        selector = {HOST_LABEL: f"in({','.join(hosts)})"}
        bundles, kept = [dict([bundle])], {"name": name, "lifetime": "detached"}
        made = self._groups.placement_group(bundles, bundle_label_selector=[selector], **kept)
        until_s, group = time.monotonic() + _DECIDE_S, Group(name)
        while group.host is None and not group.is_stuck and time.monotonic() < until_s:
            time.sleep(_LOOK_S)
            group = self._group(self._groups.placement_group_table(made))
        return group

    def remove(self, name: str) -> None:
        with contextlib.suppress(ValueError):  # it is gone already
            self._groups.remove_placement_group(self._groups.get_placement_group(name))

    def _group(self, row: Mapping[str, Any]) -> Group:
        node = row["bundles_to_node_id"].get(0, "") if row["state"] == "CREATED" else ""
        host = self._hosts.get(node) or None
        is_stuck = host is None and row["stats"]["scheduling_state"] in _STUCK
        return Group(row["name"], host, is_stuck)
