"""The limiter of one process: a dictionary, and no await in the middle of anything.

Every call takes time proportional to the claim's number of rules. Of rules that are idle
(nothing used) nothing is kept, except until the next few new ones come.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from accounts.limits import buckets, calendar
from accounts.limits.leases import (
    LOST,
    Denial,
    Floor,
    Grant,
    Lease,
    Level,
    Reading,
    binding_denial,
    denials_of,
    grant_of,
    level_of,
)
from accounts.limits.limiter import LEASE_TTL_S, LeaseExists
from accounts.limits.rules import GRAINS, Claim, Costs, Kind, Rule, Spent

# More than one, so that the idle go faster than the new come.
_NUM_LOOKED_AT_PER_NEW_RULE = 2


class _Tab:
    """How much of a rule is used (grains), and since or at what time (Unix ms)."""

    __slots__ = ("at_ms", "end_ms", "is_bucket", "rule", "used")

    def __init__(self, rule: Rule, now_ms: int) -> None:
        self.rule = rule
        self.used = 0
        self.at_ms = now_ms  # of a bucket: when `used` was so; of a quota: its window's start
        self.end_ms = 0 if rule.kind is Kind.CALENDAR else None  # of the window
        self.is_bucket = rule.kind is Kind.BUCKET

    def at(self, rule: Rule, now_ms: int) -> _Tab:
        """Let time pass, and take over the rule: its amount may have changed."""
        if self.is_bucket:
            elapsed_ms = now_ms - self.at_ms
            if elapsed_ms:
                # As `buckets.used_after`, whose call would cost as much as all the rest.
                if self.used and elapsed_ms > 0:
                    used = self.used - self.rule.amount * elapsed_ms
                    self.used = used if used > 0 else 0
                self.at_ms = now_ms
        elif self.end_ms is not None and now_ms >= self.end_ms:
            window = calendar.boundaries_at(rule, now_ms)
            _, self.at_ms, self.end_ms, _ = window
            self.used = 0
        self.rule = rule
        return self


class _Part:
    """What a lease has reserved of one rule, in grains."""

    __slots__ = ("has_left", "reserved", "reserved_here", "window_ms")

    def __init__(self, window_ms: int, reserved: int) -> None:
        self.window_ms = window_ms
        self.reserved_here = reserved  # in that window
        self.reserved = reserved  # in all windows
        self.has_left = False  # a shadow rule has refused it, so it does not count there

    def leave(self) -> None:
        """It was refused by a shadow, and nothing of it is there."""
        self.reserved_here = self.reserved = 0
        self.has_left = True


@dataclass(slots=True)
class _Open:
    """A lease that is not settled."""

    claim: Claim
    parts: list[_Part]
    expires_at_ms: int


class MemoryLimiter:
    """`Limiter` for one process and one event loop."""

    def __init__(
        self, *, clock: Callable[[], float] = time.time, lease_ttl_s: float = LEASE_TTL_S
    ) -> None:
        """`clock` tells Unix time in seconds."""
        self._clock = clock
        self._lease_ttl_ms = round(lease_ttl_s * 1000)
        self._tabs: OrderedDict[str, _Tab] = OrderedDict()
        # By the time at which they expire, because all live equally long.
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._num_to_look_at = 0

    @property
    def num_open(self) -> int:
        """Leases that are neither settled nor known to have expired."""
        return len(self._open)

    @property
    def num_rules_kept(self) -> int:
        """Rules of which something is remembered."""
        return len(self._tabs)

    async def acquire(self, claim: Claim) -> Lease | Denial:
        """See `Limiter`."""
        now_ms = self._now_ms()
        if claim.lease_id in self._open:
            raise LeaseExists(claim.lease_id)
        costs = claim.costs()
        tabs = self._tabs_of(claim.rules, now_ms)
        refusing = [
            place
            for place, (rule, tab) in enumerate(zip(claim.rules, tabs, strict=True))
            if tab.used + costs[rule.column] > rule.capacity and costs[rule.column]
        ]
        denials: tuple[Denial, ...] = ()
        if refusing:
            denials = denials_of(refusing, costs, _reading(claim.rules, tabs, now_ms))
            enforced = [denial for denial in denials if not denial.rule.is_shadow]
            if enforced:
                return binding_denial(enforced)
        parts = _reserve(claim.rules, tabs, costs, refusing)
        self._open[claim.lease_id] = _Open(claim, parts, now_ms + self._lease_ttl_ms)
        return Lease(claim, _reading(claim.rules, tabs, now_ms), denials)

    async def extend(self, lease: Lease, num_output_tokens: int) -> Grant:
        """See `Limiter`."""
        now_ms = self._now_ms()
        held = self._open.get(lease.id)
        if held is None:
            return LOST
        rules = held.claim.rules
        costs = held.claim.costs_per_output_token()
        tabs = self._tabs_of(rules, now_ms)
        fitting = {
            index: (tab.rule.capacity - tab.used) // cost
            for index, (tab, part) in enumerate(zip(tabs, held.parts, strict=True))
            if (cost := costs[tab.rule.column]) and not part.has_left
        }
        before = _reading(rules, tabs, now_ms)
        grant = grant_of(num_output_tokens, fitting, costs, before)
        for tab, part in zip(tabs, held.parts, strict=True):
            _reserve_more(tab, part, costs[tab.rule.column] * grant.num_output_tokens)
        return grant

    async def settle(self, lease: Lease, spent: Spent) -> None:
        """See `Limiter`."""
        self.settle_now(lease, spent)

    def settle_now(self, lease: Lease, spent: Spent) -> None:
        """The same for those who cannot await it, or need not: a task costs as much again."""
        now_ms = self._now_ms()
        held = self._open.pop(lease.id, None)
        if held is None:
            return
        costs = spent.costs(held.claim.weights)
        tabs = self._tabs_of(held.claim.rules, now_ms)
        for rule, tab, part in zip(held.claim.rules, tabs, held.parts, strict=True):
            _give_back(tab, part, costs[rule.column])

    async def renew(self, leases: Sequence[Lease]) -> None:
        """See `Limiter`."""
        expires_at_ms = self._now_ms() + self._lease_ttl_ms
        for lease in leases:
            held = self._open.get(lease.id)
            if held is not None:
                held.expires_at_ms = expires_at_ms
                self._open.move_to_end(lease.id)

    async def levels(self, rules: Sequence[Rule]) -> tuple[Level, ...]:
        """See `Limiter`."""
        now_ms = self._now_ms()
        return tuple(level_of(rule, self._used(rule, now_ms), now_ms) for rule in rules)

    async def restore(self, floors: Sequence[Floor]) -> None:
        """See `Limiter`."""
        now_ms = self._now_ms()
        for floor in floors:
            tab, used = self._tab(floor.rule, now_ms), floor.num_used * GRAINS
            if floor.rule.kind is Kind.TOTAL or (
                floor.rule.kind is Kind.CALENDAR and tab.at_ms == floor.since_ms
            ):
                tab.used = max(tab.used, used)
            elif floor.rule.kind is Kind.BUCKET and not tab.used:
                tab.used = buckets.used_after(used, floor.rule.amount, now_ms - floor.since_ms)

    def _now_ms(self) -> int:
        """The time, when everything that has expired until then is gone."""
        now_ms = int(self._clock() * 1000)
        self._expire(now_ms)
        if self._num_to_look_at:
            self._forget_idle(now_ms)
        return now_ms

    def _expire(self, now_ms: int) -> None:
        while self._open:
            lease_id, held = next(iter(self._open.items()))
            if held.expires_at_ms > now_ms:
                return
            del self._open[lease_id]
            for rule, part in zip(held.claim.rules, held.parts, strict=True):
                if rule.kind is Kind.PLACES:
                    _give_back(self._tab(rule, now_ms), part, 0)

    def _forget_idle(self, now_ms: int) -> None:
        # Between two calls: in the middle of one, somebody still holds an idle tab.
        num = min(self._num_to_look_at, len(self._tabs))
        self._num_to_look_at = 0
        for _ in range(num):
            key, tab = self._tabs.popitem(last=False)
            if tab.at(tab.rule, now_ms).used:
                self._tabs[key] = tab

    def _tab(self, rule: Rule, now_ms: int) -> _Tab:
        [tab] = self._tabs_of((rule,), now_ms)
        return tab

    def _tabs_of(self, rules: Sequence[Rule], now_ms: int) -> list[_Tab]:
        return [
            self._new_tab(rule, now_ms) if tab is None else tab.at(rule, now_ms)
            for rule in rules
            for tab in (self._tabs.get(rule.key),)
        ]

    def _new_tab(self, rule: Rule, now_ms: int) -> _Tab:
        tab = self._tabs[rule.key] = _Tab(rule, now_ms)
        self._num_to_look_at += _NUM_LOOKED_AT_PER_NEW_RULE
        return tab.at(rule, now_ms)

    def _used(self, rule: Rule, now_ms: int) -> int:
        return self._tab(rule, now_ms).used if rule.key in self._tabs else 0


def _reading(rules: tuple[Rule, ...], tabs: Sequence[_Tab], now_ms: int) -> Reading:
    return Reading(rules, [tab.used for tab in tabs], now_ms)


def _reserve(
    rules: Sequence[Rule], tabs: Sequence[_Tab], costs: Costs, refusing: Sequence[int]
) -> list[_Part]:
    """Take what a claim costs. Those that refuse are shadows here, and keep out of it."""
    parts = []
    for rule, tab in zip(rules, tabs, strict=True):
        cost = costs[rule.column]
        tab.used += cost
        parts.append(_Part(tab.at_ms, cost))
    for place in refusing:
        tabs[place].used -= parts[place].reserved
        parts[place].leave()
    return parts


def _reserve_more(tab: _Tab, part: _Part, cost: int) -> None:
    if part.has_left or not cost:
        return
    if tab.rule.is_shadow and cost > tab.rule.capacity - tab.used:
        part.has_left = True
        cost = max(0, tab.rule.capacity - tab.used)
    if tab.at_ms != part.window_ms and tab.rule.kind is Kind.CALENDAR:
        part.window_ms = tab.at_ms
        part.reserved_here = 0
    tab.used += cost
    part.reserved += cost
    part.reserved_here += cost


def _give_back(tab: _Tab, part: _Part, spent: int) -> None:
    """Replace a reservation by what was spent of it, unless its window is over."""
    unused = part.reserved - spent
    if not unused:
        return
    if unused < 0 and tab.rule.is_shadow:
        return  # it may have left early, and then the rest was never counted
    if tab.at_ms != part.window_ms and tab.end_ms is not None:
        return
    used = tab.used - (unused if unused < part.reserved_here else part.reserved_here)
    tab.used = used if used > 0 else 0
