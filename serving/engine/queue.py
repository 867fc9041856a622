"""Who is admitted next: of those that wait the lowest priority number, and among equals the
one that came first.

Nobody is brought forward for having waited long, so that while others of a lower number keep
coming, a generation may wait until its deadline, which is counted from its arrival, and is
then told so. What it cannot do is wait longer. Places in the queue are not a matter of
priority either: whoever has one keeps it.
"""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict

from serving.engine.generation import Generation


class Queue:
    """A lane for each priority that somebody waits with: mostly there is one, or none."""

    def __init__(self) -> None:
        # The lanes are sets that keep the order of arrival, none of them empty.
        self._lanes: dict[int, OrderedDict[Generation, None]] = {}
        self._priorities: list[int] = []  # sorted, of the lanes

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    def __bool__(self) -> bool:
        return bool(self._priorities)

    def add(self, generation: Generation) -> None:
        """It waits behind all of its own priority."""
        priority = generation.submit.priority
        lane = self._lanes.get(priority)
        if lane is None:
            lane = self._lanes[priority] = OrderedDict()
            insort(self._priorities, priority)
        lane[generation] = None

    def put_back(self, generation: Generation) -> None:
        """It has run before: it waits in front of all of its own priority."""
        self.add(generation)
        self._lanes[generation.submit.priority].move_to_end(generation, last=False)

    @property
    def first(self) -> Generation:
        """The next, which goes on waiting. Raises IndexError when nobody waits."""
        return next(iter(self._lanes[self._priorities[0]]))

    def pop(self) -> Generation:
        """The next; it waits no longer. Raises IndexError when nobody waits."""
        generation = self.first
        self.discard(generation)
        return generation

    def discard(self, generation: Generation) -> None:
        """It waits no longer, if it did."""
        priority = generation.submit.priority
        lane = self._lanes.get(priority)
        if lane is None:
            return
        lane.pop(generation, None)
        if not lane:
            del self._lanes[priority]
            self._priorities.remove(priority)
