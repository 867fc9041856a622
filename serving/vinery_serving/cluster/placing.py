"""Decides which host runs which replica: pure, and without Django, so that any process may decide.

A replica that runs stays, unless its host drains or is gone, the labels of its model name other
hosts, or another replica of the model is there while a host without any has room. A host keeps a
replica that leaves until the new one serves. A replica that sleeps for want of memory goes where
there is room. New replicas are spread over the hosts, to those that have the files first. A sole
host gets all, and reports itself what does not fit.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

NOWHERE: Final = "No host can run it"


@dataclass(frozen=True, slots=True)
class Replica:
    """An engine that should run somewhere."""

    model: int
    number: int
    device: str  # the one whose memory it takes, see `first_device`
    needed_bytes: int = 0  # 0: unknown
    files: frozenset[str] = frozenset()  # the folders of the model, as in `HostOffer.lacks`
    labels: frozenset[str] = frozenset()  # such as disk=fast, which its host must have


@dataclass(frozen=True, slots=True)
class HostOffer:
    """A host that lives. `budgets` has the bytes of each device, None for one without a limit."""

    id: str
    name: str
    budgets: Mapping[str, int | None] = field(default_factory=dict)  # empty: not known yet
    labels: frozenset[str] = frozenset()
    lacks: frozenset[str] = frozenset()  # folders that it does not have, and cannot get
    has: frozenset[str] = frozenset()  # folders that it is known to have
    is_draining: bool = False
    is_away: bool = False  # its lease has not ended, but nobody renews it


@dataclass(frozen=True, slots=True)
class Assignment:
    model: int
    number: int
    host: str  # its id
    is_ready: bool = False  # the replica serves there
    is_asleep: bool = False  # there is no engine: it waits for a request or for memory, or failed
    has_failed: bool = False

    @property
    def can_answer(self) -> bool:
        return self.is_ready or (self.is_asleep and not self.has_failed)

    @property
    def key(self) -> tuple[int, int, str]:
        return self.model, self.number, self.host


class Refusal(NamedTuple):
    """Why a model has no host for a replica."""

    reason: str
    is_lasting: bool  # while hosts and settings are as they are


@dataclass(frozen=True, slots=True)
class Placing:
    assignments: frozenset[tuple[int, int, str]]  # model, replica and host
    refused: Mapping[int, Refusal]


Place = Callable[[Collection[Replica], Collection[HostOffer], Collection[Assignment]], Placing]
"""Returns all assignments that should be, with those of the present ones that stay."""


def place_locally(
    wanted: Collection[Replica], hosts: Collection[HostOffer], present: Collection[Assignment]
) -> Placing:
    return Turn(hosts).place(wanted, present)


class Turn:
    """One placing. `ray_agent` chooses hosts in another way."""

    def __init__(self, hosts: Collection[HostOffer]) -> None:
        self._hosts = {each.id: each for each in hosts}
        self._is_sole = len(self._hosts) == 1
        self._used: Counter[tuple[str, str]] = Counter()  # bytes by host and device
        self._of_model: Counter[tuple[str, int]] = Counter()  # replicas by host and model
        self._of_host: Counter[str] = Counter()
        # The numbers of the replicas that are at a host, or come to it, by host and model.
        self._near: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
        self._found: set[tuple[int, int, str]] = set()

    def place(self, wanted: Collection[Replica], present: Iterable[Assignment]) -> Placing:
        held: defaultdict[tuple[int, int], list[Assignment]] = defaultdict(list)
        for each in present:
            if each.host in self._hosts:
                held[each.model, each.number].append(each)
                self._near[each.host, each.model].add(each.number)

        def is_idle(replica: Replica) -> bool:
            return all(each.is_asleep for each in held[replica.model, replica.number])

        lacking: list[Replica] = []
        for replica in sorted(wanted, key=lambda each: (is_idle(each), each.model, each.number)):
            if self._keep(replica, held[replica.model, replica.number]) is None:
                lacking.append(replica)
        refused = {}
        for replica in lacking:
            here = held[replica.model, replica.number]
            if (host := self._best(replica)) is not None:
                self._take(replica, host)
                here = [former for former in here if former.is_ready]
            elif (refusal := self._refusal(replica)) is not None:
                refused[replica.model] = refusal
            for former in here:
                self._take(replica, self._hosts[former.host])
        return Placing(frozenset(self._found), refused)

    def _keep(self, replica: Replica, held: Sequence[Assignment]) -> HostOffer | None:
        """Take the assignments that stay. Returns the host where the replica stays."""
        staying = [each for each in held if not self._must_leave(replica, each)]
        if not staying:
            return None
        best = max(staying, key=lambda each: each.is_ready)
        host = self._hosts[best.host]
        self._take(replica, host)
        if not best.can_answer:
            for each in held:
                if each.is_ready and each not in staying:
                    self._take(replica, self._hosts[each.host])
        return host

    def _must_leave(self, replica: Replica, held: Assignment) -> bool:
        host = self._hosts[held.host]
        if self._is_sole:
            return False
        if host.is_draining or not replica.labels <= host.labels:
            return True
        if held.is_ready and self._spreads(replica, host):
            return True
        return held.is_asleep and self._is_better_elsewhere(replica, host)

    def _spreads(self, replica: Replica, host: HostOffer) -> bool:
        """Whether another replica of the model stays here, and a host without any has room."""
        if not self._of_model[host.id, replica.model]:
            return False
        for each in self._usable(replica):
            near = self._near[each.id, replica.model]
            if near <= {replica.number} and self._has_room(replica, each):
                near.add(replica.number)
                return True
        return False

    def _is_better_elsewhere(self, replica: Replica, host: HostOffer) -> bool:
        is_unfit = obstacle(replica, host) or not self._has_room(replica, host)
        return bool(is_unfit) and any(
            self._has_room(replica, each) for each in self._usable(replica)
        )

    def _usable(self, replica: Replica) -> list[HostOffer]:
        hosts = self._hosts.values()
        return [
            each for each in hosts if self._is_sole or not (each.is_away or obstacle(replica, each))
        ]

    def _best(self, replica: Replica) -> HostOffer | None:
        return min(self._usable(replica), key=lambda each: self._order(replica, each), default=None)

    def _refusal(self, replica: Replica) -> Refusal | None:
        return why_nowhere(replica, self._hosts.values())

    def _order(self, replica: Replica, host: HostOffer) -> tuple[bool, int, int, int, str]:
        is_full, num_new = not self._has_room(replica, host), len(replica.files - host.has)
        beside = self._of_model[host.id, replica.model]
        return is_full, beside, num_new, self._of_host[host.id], host.name

    def _take(self, replica: Replica, host: HostOffer) -> None:
        self._found.add((replica.model, replica.number, host.id))
        self._used[host.id, replica.device] += replica.needed_bytes
        self._of_model[host.id, replica.model] += 1
        self._of_host[host.id] += 1

    def _has_room(self, replica: Replica, host: HostOffer) -> bool:
        free = _budget(replica, host) - self._used[host.id, replica.device]
        return replica.needed_bytes <= free


def obstacle(replica: Replica, host: HostOffer) -> str:
    """Return why a replica cannot run on a host; empty: it can."""
    missing = sorted(replica.labels - host.labels)
    if host.is_draining:
        return "is being drained"
    if missing:
        return f"has not the label {missing[0]}"
    if host.budgets and replica.device not in host.budgets:
        return f"has no {replica.device}"
    if replica.files & host.lacks:
        return "does not have its files"
    if replica.needed_bytes > (budget := _budget(replica, host)):
        return f"has too little memory ({budget / 1e6:.0f} of {replica.needed_bytes / 1e6:.0f} MB)"
    return ""


def why_nowhere(
    replica: Replica,
    hosts: Iterable[HostOffer],
    otherwise: Callable[[HostOffer], str] = lambda _: "is away",
) -> Refusal:
    """`otherwise`: what keeps it for now from a host that could run it."""
    named = sorted(hosts, key=lambda each: each.name)
    found = [f"{each.name} {obstacle(replica, each) or otherwise(each)}" for each in named]
    is_lasting = bool(named) and all(obstacle(replica, each) for each in named)
    begin = NOWHERE if is_lasting else f"{NOWHERE} yet"
    return Refusal(f"{begin}: {', '.join(found) or 'none runs'}.", is_lasting)


def _budget(replica: Replica, host: HostOffer) -> float:
    budget = host.budgets.get(replica.device)
    return math.inf if budget is None else budget
