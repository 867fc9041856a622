"""The agent of Ray: the only process of an installation that Ray knows, and that imports Ray.

Each host has an agent, and the one that holds the agents' lock acts. It writes placements, and the
nodes carry them out. It may end at any time: placements are rows, and groups outlive their maker.
While Ray's head is away, nothing new is placed. Ray ends a process that asks a head which has been
gone for a minute, so the agent leaves Ray before.

A placement group of Ray holds the memory of each replica, on the host where the replica runs. Ray
chooses the host of a new replica: first among the hosts with the fewest replicas of its model, then
among all that may run it. Replicas that run stay or leave as with the local placer, and their
groups follow them. Ray knows neither leases nor Vinery's labels: each group names the hosts on
which it may lie. The name of a group says all that was asked for, so a new agent finds what the
former one made.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from typing import Any, Final

from django.conf import settings
from django.db import DatabaseError

from vinery_accounts.base.connections import giving_back
from vinery_serving.cluster import places
from vinery_serving.cluster.lease import RENEW_S, AgentLease
from vinery_serving.cluster.placing import (
    Assignment,
    HostOffer,
    Placing,
    Refusal,
    Replica,
    Turn,
    obstacle,
    why_nowhere,
)

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
_PREFIX: Final = "vinery"
_MIB: Final = 1 << 20
# New groups of a turn, for which the database gives 5 s.
_AT_ONCE: Final = 8


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
    if lease.is_open:
        placer.look()
    if lease.renew().other_holder:
        placer.leave()
        placer.look()
    else:
        placer.connect()
        lease.renew()  # connecting may have taken longer than leases last
        places.place(lease, placer.place)


@dataclass(frozen=True, slots=True)
class Group:
    """A placement group: `vinery/MODEL/REPLICA/RESOURCE/MIB/HOSTS`."""

    name: str
    host: str | None = None  # its id; None: Ray has not placed the group
    is_stuck: bool = False  # Ray has found no room

    @property
    def key(self) -> tuple[int, int] | None:
        """Model and number of the replica; None: the group is not Vinery's."""
        words = self.name.split("/")
        return (int(words[1]), int(words[2])) if words[0] == _PREFIX else None


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
            return RayTurn(self, hosts, wanted).place(wanted, present)

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
        """The ids of the hosts that are in the cluster."""
        return self._hosts.values()

    def all(self) -> list[Group]:
        nodes = [each for each in self._ray.nodes() if each["Alive"]]
        self._hosts = {each["NodeID"]: each["Labels"].get(HOST_LABEL, "") for each in nodes}
        rows = self._groups.placement_group_table().values()
        return [self._group(each) for each in rows if each["state"] != "REMOVED"]

    def create(self, name: str, bundle: tuple[str, int], hosts: Sequence[str]) -> Group:
        """Create a group on one of the hosts, and give Ray a moment to place it."""
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


class RayTurn(Turn):
    """Makes the groups what they should be, some in each turn. Raises what `ray` raises."""

    def __init__(
        self, ray: RayPlacer, hosts: Collection[HostOffer], wanted: Collection[Replica]
    ) -> None:
        super().__init__(hosts)
        self._is_sole = False
        self._ray = ray
        self._num_left = _AT_ONCE
        self._groups: dict[tuple[int, int], Group] = {}
        keys = {(each.model, each.number) for each in wanted}
        for group in ray.all():
            if group.key in keys and group.key not in self._groups:
                self._groups[group.key] = group
            elif group.key is not None:
                ray.remove(group.name)

    def _keep(self, replica: Replica, held: Sequence[Assignment]) -> HostOffer | None:
        host = super()._keep(replica, held)
        if host is not None:
            self._reserve(replica, (host.id,), (host.id,))
        return host

    def _is_better_elsewhere(self, replica: Replica, host: HostOffer) -> bool:
        return bool(obstacle(replica, host))  # its memory is reserved

    def _best(self, replica: Replica) -> HostOffer | None:
        orders = {each.id: self._order(replica, each)[1:3] for each in self._usable(replica)}
        least = min(orders.values(), default=None)
        hosts = tuple(sorted(orders))
        first = tuple(each for each in hosts if orders[each] == least)
        group = self._reserve(replica, first, hosts)
        return None if group is None or group.host is None else self._hosts[group.host]

    def _refusal(self, replica: Replica) -> Refusal | None:
        group = self._groups.get((replica.model, replica.number))
        if self._usable(replica) and not (group is not None and group.is_stuck):
            return None  # Ray has not decided yet
        resource, mib = bundle_of(replica)

        def why_stuck(host: HostOffer) -> str:
            if host.id not in self._ray.hosts:
                return "is not in Ray yet"
            return f"has not {mib} MiB of {resource} left in Ray"

        return why_nowhere(replica, self._hosts.values(), why_stuck)

    def _reserve(
        self, replica: Replica, first: tuple[str, ...], hosts: tuple[str, ...]
    ) -> Group | None:
        """Return the group of a replica that may lie on `hosts`, a new one if the former does not
        suit: on one of the `first` hosts if Ray finds room there."""
        key = replica.model, replica.number
        former = self._groups.pop(key, None)
        suits = former is not None and _suits(former, replica, first, hosts)
        group = former if suits else self._create(replica, former, first, hosts)
        self._num_left -= group is not former
        if group is not None:
            self._groups[key] = group
            if group.host is None and not group.is_stuck:
                self._num_left = 0  # where the next replicas should go depends on this one
        return group

    def _create(
        self, replica: Replica, former: Group | None, *choices: tuple[str, ...]
    ) -> Group | None:
        left = [each for each in dict.fromkeys(choices) if each]
        if former is not None:
            self._ray.remove(former.name)
            if former.name == _name(replica, choices[0]):  # Ray has found no room there
                left = left[1:]
        group = None
        for choice in left if self._num_left > 0 else ():
            if group is not None:
                self._ray.remove(group.name)
            group = self._ray.create(_name(replica, choice), bundle_of(replica), choice)
            if not group.is_stuck:
                break
        return group


def resource_of(device: str) -> str:
    """Name the resource of Ray that counts the memory of a device in MiB."""
    return f"{_PREFIX}-{device}"


def bundle_of(replica: Replica) -> tuple[str, int]:
    """Return the resource that a replica needs, and how many MiB: Ray refuses an empty bundle."""
    return resource_of(replica.device), max(1, -(-replica.needed_bytes // _MIB))


def _name(replica: Replica, hosts: Iterable[str]) -> str:
    digest = sha256(" ".join(hosts).encode()).hexdigest()[:12]
    words = _PREFIX, replica.model, replica.number, *bundle_of(replica), digest
    return "/".join(map(str, words))


def _suits(group: Group, replica: Replica, first: Iterable[str], hosts: Collection[str]) -> bool:
    """Whether the group lies where the replica may run, or waits for nothing but room."""
    if group.host is not None:
        is_as_large = group.name.split("/")[3:5] == list(map(str, bundle_of(replica)))
        had_choice = group.name == _name(replica, hosts)  # Ray has found no better one
        return is_as_large and group.host in (hosts if had_choice else first)
    is_first = group.name == _name(replica, first) and not group.is_stuck
    return is_first or group.name == _name(replica, hosts)
