"""Fair order between the clients of an engine: a queue of lanes, and who must yield a slot. A lane
belongs to one API key. The next item is of the waiting organisation with the least use, and there
of the waiting key with the least use, measured in cost. This is start-time fair queueing: a lane
that begins to wait starts level with the lane that was served last."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field
from itertools import count, islice
from operator import itemgetter
from typing import Final, Generic, NamedTuple, TypeVar

Lane = tuple[int, int]  # the ids of the organisation and of the key
ItemT = TypeVar("ItemT")

_MAX_LANES: Final = 1024  # idle lanes are forgotten beyond this number


@dataclass(eq=False, slots=True)
class _Key(Generic[ItemT]):
    lane: Lane
    used: float = 0.0
    entries: list[tuple[int, int, ItemT]] = field(default_factory=list)  # priority, number, item


@dataclass(eq=False, slots=True)
class _Organization(Generic[ItemT]):
    used: float = 0.0
    level: float = 0.0  # the last served key's use before that
    num_waiting: int = 0
    keys: dict[int, _Key[ItemT]] = field(default_factory=dict)


class _Waiting(NamedTuple, Generic[ItemT]):
    """Where an item is. The number makes entries unique, so items are never compared."""

    key: _Key[ItemT]
    entry: tuple[int, int, ItemT]
    cost: float


def _no(_: object) -> bool:
    return False


class FairQueue(Generic[ItemT]):
    """Items by lane, and in a lane by priority number and arrival, however long an item has
    waited."""

    def __init__(self, cost: Callable[[ItemT], float]) -> None:
        """`cost` returns what a lane is charged when the item is taken, at least 0."""
        self._cost = cost
        self._organizations: dict[int, _Organization[ItemT]] = {}
        self._level = 0.0  # the last served organisation's use before that
        self._waiting: dict[ItemT, _Waiting[ItemT]] = {}
        self._numbers = count(1)

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, item: ItemT) -> bool:
        return item in self._waiting

    def add(self, item: ItemT, lane: Lane, priority: int = 0) -> None:
        self._insert(item, lane, priority, next(self._numbers))

    def put_back(self, item: ItemT, lane: Lane, priority: int = 0) -> None:
        """Add an item that was taken before, in front of all of its lane and priority."""
        self._insert(item, lane, priority, -next(self._numbers))

    def pop(self) -> ItemT:
        """Remove and return the first item, and charge its lane. Raises ValueError if empty."""
        item = self.pop_except(frozenset())
        if item is None:
            raise ValueError("the queue is empty")
        return item

    def first_except(self, lanes: Set[Lane], waits: Callable[[ItemT], bool] = _no) -> ItemT | None:
        """Return the next item outside these lanes for which `waits` is false; None without any."""
        able = (
            (organization.used, key.used, entry)
            for organization, key in self._keys()
            if key.lane not in lanes
            for entry in islice((each for each in key.entries if not waits(each[2])), 1)
        )
        found = min(able, key=itemgetter(0, 1), default=None)
        return None if found is None else found[2][2]

    def pop_except(self, lanes: Set[Lane]) -> ItemT | None:
        item = self.first_except(lanes)
        if item is not None:
            self.take(item)
        return item

    def take(self, item: ItemT) -> None:
        key, _, cost = self._waiting[item]
        organization = self._organizations[key.lane[0]]
        self._level = max(self._level, organization.used)
        organization.level = max(organization.level, key.used)
        organization.used += cost
        key.used += cost
        self.discard(item)

    def discard(self, item: ItemT) -> None:
        waiting = self._waiting.pop(item, None)
        if waiting is None:
            return
        key = waiting.key
        del key.entries[bisect_left(key.entries, waiting.entry)]
        self._organizations[key.lane[0]].num_waiting -= 1

    def charge(self, lane: Lane, cost: float) -> None:
        """Charge a lane more than the cost of its items so far, or less by a negative number."""
        for each in self._find(lane) or ():
            each.used += cost

    def num_of(self, lane: Lane) -> int:
        found = self._find(lane)
        return len(found[1].entries) if found else 0

    def nums(self) -> Counter[Lane]:
        """Count what waits, by lane."""
        return Counter({key.lane: len(key.entries) for _, key in self._keys() if key.entries})

    def last_to_yield(self, lane: Lane) -> ItemT | None:
        yielding = yielding_lane(lane, self.nums())
        found = yielding and self._find(yielding)
        return found[1].entries[-1][2] if found else None

    def _keys(self) -> Iterable[tuple[_Organization[ItemT], _Key[ItemT]]]:
        return ((each, key) for each in self._organizations.values() for key in each.keys.values())

    def _insert(self, item: ItemT, lane: Lane, priority: int, number: int) -> None:
        organization, key = self._find(lane) or self._new(lane)
        if not organization.num_waiting:
            organization.used = max(organization.used, self._level)
        if not key.entries:
            key.used = max(key.used, organization.level)
        waiting = self._waiting[item] = _Waiting(key, (priority, number, item), self._cost(item))
        insort(key.entries, waiting.entry)
        organization.num_waiting += 1

    def _find(self, lane: Lane) -> tuple[_Organization[ItemT], _Key[ItemT]] | None:
        organization = self._organizations.get(lane[0])
        key = organization and organization.keys.get(lane[1])
        return (organization, key) if organization and key else None

    def _new(self, lane: Lane) -> tuple[_Organization[ItemT], _Key[ItemT]]:
        organizations = self._organizations
        if sum(len(each.keys) for each in organizations.values()) >= _MAX_LANES:
            for each in organizations.values():
                each.keys = {id_: key for id_, key in each.keys.items() if key.entries}
            organizations = {id_: each for id_, each in organizations.items() if each.keys}
            self._organizations = organizations
        organization = organizations.setdefault(lane[0], _Organization())
        key = organization.keys[lane[1]] = _Key(lane)
        return organization, key


def num_before(lane: Lane, waiting: Counter[Lane]) -> int:
    """Return how many of what waits are served before a new item of this lane. Lanes take turns:
    another lane is ahead with no more than this lane has, the new item included, and so is another
    organisation."""
    own = waiting[lane] + 1
    organizations: Counter[int] = Counter()
    for each, num in waiting.items():
        organizations[each[0]] += min(num, own) if each[0] == lane[0] else num
    of_own = organizations.pop(lane[0], 0)
    return of_own + sum(min(num, of_own + 1) for num in organizations.values())


def yielding_lane(lane: Lane, holders: Counter[Lane], share: float = float("inf")) -> Lane | None:
    """Return the lane that must yield a slot to `lane`; None: no lane holds so many more.

    A lane with more than `share` slots yields to any lane with fewer than `share`, and no lane
    yields to a lane with `share` slots or more.

    `holders` counts the slots by lane. After the exchange, the yielding lane still holds at least
    as many as the other, so the two do not take a slot from each other by turns.
    """
    if not holders or holders[lane] >= share:
        return None
    [(greediest, num_held)] = holders.most_common(1)
    if num_held > share:
        return greediest
    organizations: Counter[int] = Counter()
    for (organization, _), num in holders.items():
        organizations[organization] += num
    [(largest, num_largest)] = organizations.most_common(1)
    if num_largest > organizations[lane[0]] + 1:
        keys = {each: num for each, num in holders.items() if each[0] == largest}
        return max(keys, key=keys.__getitem__)
    own = {each: num for each, num in holders.items() if each[0] == lane[0]}
    fullest = max(own, key=own.__getitem__, default=lane)
    return fullest if own.get(fullest, 0) > own.get(lane, 0) + 1 else None
