"""Lets Ray say where a replica fits: pure, but for what the groups of the cluster do.

A placement group of Ray holds the memory of each replica, on the host where the replica runs. Ray
chooses the host of a new replica: first among the hosts with the fewest replicas of its model, then
among all that may run it. A replica that runs stays, as with the local placer, and its group
follows it. Ray knows neither leases nor Vinery's labels: each group names the hosts on which it may
lie. The name of a group says all that was asked for, so a new agent finds what the former one made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Final, Protocol

from vinery_serving.cluster.placing import (
    Assignment,
    HostOffer,
    Placing,
    Refusal,
    Replica,
    obstacle,
    why_nowhere,
)

_PREFIX: Final = "vinery"
_MIB: Final = 1 << 20
# New groups of a turn, for which the database gives 5 s.
_AT_ONCE: Final = 8


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


class Groups(Protocol):
    """The placement groups of a cluster."""

    @property
    def hosts(self) -> Collection[str]:
        """The ids of the hosts that are in the cluster."""
        ...

    def all(self) -> Collection[Group]: ...

    def create(self, name: str, bundle: tuple[str, int], hosts: Sequence[str]) -> Group:
        """Create a group on one of the hosts, and give Ray a moment to place it."""
        ...

    def remove(self, name: str) -> None: ...


def resource_of(device: str) -> str:
    """Name the resource of Ray that counts the memory of a device in MiB."""
    return f"vinery-{device}"


class Wish:
    """A replica, and what its group should be."""

    def __init__(
        self, replica: Replica, hosts: Collection[HostOffer], present: Iterable[Assignment]
    ) -> None:
        self.key = replica.model, replica.number
        live = {each.id: each for each in hosts}
        held = [each for each in present if each.key[:2] == self.key and each.host in live]
        staying = [each for each in held if _stays(replica, live[each.host], each)]
        best = max(staying, key=lambda each: each.is_ready, default=None)
        self.replica, self._held = replica, held
        self.stays_on = best and best.host
        # Where the group may lie.
        usable = (each for each in hosts if not (each.is_away or obstacle(replica, each)))
        free = sorted(each.id for each in usable)
        self.hosts = tuple(free) if best is None else (best.host,)
        self.num_having = {each.id: len(replica.files & each.has) for each in hosts}
        mib = -(-replica.needed_bytes // _MIB)
        # Ray refuses an empty bundle.
        self.bundle = resource_of(replica.device), max(1, mib)

    def name(self, hosts: Iterable[str]) -> str:
        digest = sha256(" ".join(hosts).encode()).hexdigest()[:12]
        return "/".join(map(str, (_PREFIX, *self.key, *self.bundle, digest)))

    def suits(self, group: Group, first: Iterable[str]) -> bool:
        """Whether the group lies where the replica may run, or waits for nothing but room."""
        if group.host is not None:
            is_as_large = group.name.split("/")[3:5] == list(map(str, self.bundle))
            return is_as_large and group.host in self.hosts
        is_first = group.name == self.name(first) and not group.is_stuck
        return is_first or group.name == self.name(self.hosts)

    def homes(self, group: Group | None) -> set[str]:
        """Return the hosts of the replica. A former host keeps a replica that serves until the new
        one does."""
        home = self.stays_on or (None if group is None else group.host)
        if any(each.host == home and each.can_answer for each in self._held):
            return {each.host for each in self._held if each.host == home}
        former = {each.host for each in self._held if each.is_ready or home is None}
        return former if home is None else former | {home}


def _stays(replica: Replica, host: HostOffer, held: Assignment) -> bool:
    is_unfit = held.is_asleep and obstacle(replica, host)
    return not (host.is_draining or is_unfit) and replica.labels <= host.labels


def place(
    groups: Groups,
    wanted: Collection[Replica],
    hosts: Collection[HostOffer],
    present: Collection[Assignment],
) -> Placing:
    """Make the groups what they should be, some in each turn. Raises what `groups` raises."""
    wishes = {wish.key: wish for wish in (Wish(each, hosts, present) for each in wanted)}
    found: dict[tuple[int, int], Group] = {}
    for group in groups.all():
        if group.key in wishes and group.key not in found:
            found[group.key] = group
        elif group.key is not None:
            groups.remove(group.name)
    of_model: Counter[tuple[int, str]] = Counter()  # replicas by model and host
    assignments: set[tuple[int, int, str]] = set()
    refused: dict[int, Refusal] = {}
    num_left = _AT_ONCE
    # The memory of those that stay is taken already.
    for wish in sorted(wishes.values(), key=lambda each: (each.stays_on is None, each.key)):
        model, former = wish.key[0], found.get(wish.key)
        fewest = min((of_model[model, each] for each in wish.hosts), default=0)
        first = tuple(each for each in wish.hosts if of_model[model, each] == fewest)
        most = max((wish.num_having[each] for each in first), default=0)
        first = tuple(each for each in first if wish.num_having[each] == most)
        now = _group_of(groups, wish, former, first, may_create=num_left > 0)
        num_left -= now is not former
        if now is not None and now.host is None and not now.is_stuck:
            num_left = 0  # where the next replicas should go depends on this one
        homes = wish.homes(now)
        of_model.update((model, each) for each in homes)
        assignments |= {(*wish.key, each) for each in homes}
        if not homes and (not wish.hosts or (now is not None and now.is_stuck)):
            refused[model] = why_nowhere(wish.replica, hosts, partial(_why_stuck, groups, wish))
    return Placing(frozenset(assignments), refused)


def _why_stuck(groups: Groups, wish: Wish, host: HostOffer) -> str:
    if host.id not in groups.hosts:
        return "is not in Ray yet"
    return f"has not {wish.bundle[1]} MiB of {wish.bundle[0]} left in Ray"


def _group_of(
    groups: Groups, wish: Wish, former: Group | None, first: tuple[str, ...], *, may_create: bool
) -> Group | None:
    """Return the replica's group, a new one if `former` does not suit."""
    if former is not None and wish.suits(former, first):
        return former
    choices = [each for each in dict.fromkeys((first, wish.hosts)) if each]
    if former is not None:
        groups.remove(former.name)
        if former.name == wish.name(first):  # Ray has found no room there
            choices = choices[1:]
    group = None
    for choice in choices if may_create else ():
        if group is not None:
            groups.remove(group.name)
        group = groups.create(wish.name(choice), wish.bundle, choice)
        if not group.is_stuck:
            break
    return group
