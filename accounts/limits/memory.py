"""The limiter of one process: a dictionary, and no await in the middle of anything.

Every call takes time proportional to the claim's number of rules. Of rules that are idle
(nothing used) nothing is kept, except until the next few new ones come.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec
from msgspec import structs

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
from accounts.limits.rules import GRAINS, Claim, Kind, Rule, Spent

# More than one, so that the idle go faster than the new come.
_NUM_LOOKED_AT_PER_NEW_RULE: Final = 2

_NEVER_MS: Final = 2**63

# Of one lease to a bucket. More tokens than the last two extensions are seldom left over, and
# what is left of earlier ones counts as if it were of the first.
_NUM_ADDITIONS_KEPT: Final = 2


class _Tab:
    """How much of a rule is used (grains), and since or at what time (Unix ms)."""

    __slots__ = (
        "at_ms",
        "has_drained",
        "holds_until_ms",
        "is_bucket",
        "is_calendar",
        "lows",
        "rule",
        "used",
    )

    def __init__(self, rule: Rule, now_ms: int) -> None:
        self.rule = rule
        self.used = 0
        self.at_ms = now_ms  # of a bucket: when `used` was so; of a quota: its window's start
        self.is_bucket = rule.kind is Kind.BUCKET
        self.is_calendar = rule.kind is Kind.CALENDAR
        self.has_drained = self.is_bucket  # since the last addition to it
        self.lows = buckets.Lows()
        # Before that, time alone changes nothing. A bucket refills all the time.
        self.holds_until_ms = 0 if self.is_bucket or self.is_calendar else _NEVER_MS

    def let_pass(self, rule: Rule, now_ms: int) -> None:
        """It is so late, and the rule may have another amount."""
        if self.is_bucket:
            elapsed_ms = now_ms - self.at_ms
            if elapsed_ms > 0:
                # As `buckets.used_after`, whose call would cost as much as all the rest.
                if self.used:
                    used = self.used - self.rule.amount * elapsed_ms
                    self.used = used if used > 0 else 0
                    self.has_drained = True
                self.at_ms = now_ms
            elif elapsed_ms < -buckets.MOST_AHEAD_MS:
                self.at_ms = now_ms + buckets.MOST_AHEAD_MS
        elif now_ms >= self.holds_until_ms:
            _, self.at_ms, self.holds_until_ms, _ = calendar.boundaries_at(rule, now_ms)
            self.used = 0
        self.rule = rule

    def add(self, cost: int, number: int) -> None:
        """Use so much more, by an addition of this number."""
        if cost and self.has_drained:
            self.has_drained = False
            self.lows.note(number, self.used)
        self.used += cost


class _Open(msgspec.Struct):
    """A lease that is not settled, and what it has reserved of each of its rules, in grains."""

    claim: Claim
    expires_at_ms: int
    reserved: list[int]  # in all windows
    windows_ms: list[int]  # the last one in which it has reserved something, by its start
    reserved_there: list[int]
    # The places of shadow rules that have refused it, so that it does not count there.
    left: set[int]
    number: int  # of the addition that has reserved the first of it
    # Of buckets: the last additions after that one, as number and cost.
    later: dict[int, list[tuple[int, int]]] = {}

    def follow(self, rules: tuple[Rule, ...]) -> None:
        """Its rules are these now. It may have been reserved of some of them only."""
        if rules is not self.claim.rules:
            if len(rules) != len(self.claim.rules):
                keys = {rule.key for rule in self.claim.rules}
                rules = tuple(rule for rule in rules if rule.key in keys)
            self.claim = structs.replace(self.claim, rules=rules)

    def reserve(self, place: int, tab: _Tab, cost: int, number: int) -> None:
        """That much more of a rule, by an addition of this number."""
        if not cost or place in self.left:
            return
        if tab.rule.is_shadow and cost > tab.rule.capacity - tab.used:
            self.left.add(place)
            cost = max(0, tab.rule.capacity - tab.used)
        if tab.is_calendar and tab.at_ms != self.windows_ms[place]:
            self.windows_ms[place] = tab.at_ms
            self.reserved_there[place] = 0
        if tab.is_bucket and cost:
            later = self.later.setdefault(place, [])
            later.append((number, cost))
            del later[:-_NUM_ADDITIONS_KEPT]
        tab.add(cost, number)
        self.reserved[place] += cost
        self.reserved_there[place] += cost

    def give_back(self, place: int, tab: _Tab, spent: int, number: int) -> None:
        """Replace what is reserved of a rule by what was spent of it, unless its window is
        over. What was spent beyond it is an addition of this number."""
        unused = self.reserved[place] - spent
        if unused < 0 and tab.rule.is_shadow:
            return  # it may have left early, and then the rest was never counted
        if tab.is_bucket:
            self._give_back_to_bucket(place, tab, unused, number)
            return
        if tab.is_calendar and tab.at_ms != self.windows_ms[place]:
            return
        used = tab.used - min(unused, self.reserved_there[place])
        tab.used = used if used > 0 else 0

    def _give_back_to_bucket(self, place: int, tab: _Tab, unused: int, number: int) -> None:
        if unused < 0:
            tab.add(-unused, number)
            return
        # What was reserved last is what was not used.
        for addition, cost in reversed(self.later.get(place, ())):
            part = min(unused, cost)
            tab.used -= tab.lows.give_back(addition, part, tab.used)
            unused -= part
        tab.used -= tab.lows.give_back(self.number, unused, tab.used)


class MemoryLimiter:
    """`Limiter` for one process and one event loop."""

    def __init__(
        self, *, clock: Callable[[], float] = time.time, lease_ttl_s: float = LEASE_TTL_S
    ) -> None:
        """`clock` tells Unix time in seconds."""
        self._clock = clock
        self._lease_ttl_ms = round(lease_ttl_s * 1000)
        self._tabs: OrderedDict[str, _Tab] = OrderedDict()
        self._open: dict[str, _Open] = {}
        self._num_to_look_at = 0
        self._num_additions = 0  # to all rules together

    @property
    def num_open(self) -> int:
        """Leases that are neither settled nor expired."""
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
        tabs: list[_Tab] = []
        used: list[int] = []
        reserved: list[int] = []
        windows_ms: list[int] = []
        refusing: list[int] = []
        drained: list[tuple[_Tab, int]] = []  # and how far, before this claim
        for rule in claim.rules:
            tab = self._tab(rule, now_ms)
            cost = costs[rule.column]
            if cost and tab.used + cost > rule.capacity:
                refusing.append(len(tabs))
                cost = 0
            if tab.has_drained and cost:
                drained.append((tab, tab.used))
            tab.used += cost
            tabs.append(tab)
            used.append(tab.used)
            reserved.append(cost)
            windows_ms.append(tab.at_ms)
        denials: tuple[Denial, ...] = ()
        if refusing:
            before = [amount - cost for amount, cost in zip(used, reserved, strict=True)]
            denials = denials_of(refusing, costs, Reading(claim.rules, before, now_ms))
            enforced = [denial for denial in denials if not denial.rule.is_shadow]
            if enforced:
                for tab, amount in zip(tabs, before, strict=True):
                    tab.used = amount
                denial = binding_denial(enforced)
                return structs.replace(denial, is_enforced=self._is_held(denial.rule))
        self._num_additions = number = self._num_additions + 1
        for tab, level in drained:
            tab.has_drained = False
            tab.lows.note(number, level)
        expires_at_ms = now_ms + self._lease_ttl_ms
        self._open[claim.lease_id] = _Open(
            claim, expires_at_ms, reserved, windows_ms, reserved.copy(), set(refusing), number
        )
        return Lease(claim, Reading(claim.rules, used, now_ms), denials)

    async def extend(self, lease: Lease, num_output_tokens: int) -> Grant:
        """See `Limiter`."""
        now_ms = self._now_ms()
        held = self._open.get(lease.id)
        if held is None:
            return LOST
        held.follow(lease.claim.rules)
        rules = held.claim.rules
        costs = held.claim.costs_per_output_token()
        tabs = [self._tab(rule, now_ms) for rule in rules]
        fitting = {
            place: (tab.rule.capacity - tab.used) // cost
            for place, tab in enumerate(tabs)
            if (cost := costs[tab.rule.column]) and place not in held.left
        }
        before = _reading(rules, tabs, now_ms)
        grant = grant_of(num_output_tokens, fitting, costs, before)
        self._num_additions += 1
        for place, tab in enumerate(tabs):
            cost = costs[tab.rule.column] * grant.num_output_tokens
            held.reserve(place, tab, cost, self._num_additions)
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
        held.follow(lease.claim.rules)
        costs = spent.costs(held.claim.weights)
        self._num_additions += 1
        for place, rule in enumerate(held.claim.rules):
            cost = costs[rule.column]
            if cost != held.reserved[place]:
                held.give_back(place, self._tab(rule, now_ms), cost, self._num_additions)

    async def renew(self, leases: Sequence[Lease]) -> None:
        """See `Limiter`. Only then do those expire that are left out: in one process it is not
        silence that tells the dead, for it may itself have stood still."""
        now_ms = self._now_ms()
        for lease in leases:
            held = self._open.get(lease.id)
            if held is not None:
                held.expires_at_ms = now_ms + self._lease_ttl_ms
        self._expire(now_ms)

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
                self._num_additions += 1
                used = buckets.used_after(used, floor.rule.amount, now_ms - floor.since_ms)
                tab.add(used, self._num_additions)

    def _now_ms(self) -> int:
        """The time, when some of what is idle until then is forgotten."""
        now_ms = int(self._clock() * 1000)
        if self._num_to_look_at:
            self._forget_idle(now_ms)
        return now_ms

    def _expire(self, now_ms: int) -> None:
        dead = [id_ for id_, held in self._open.items() if held.expires_at_ms <= now_ms]
        for lease_id in dead:
            held = self._open.pop(lease_id)
            for place, rule in enumerate(held.claim.rules):
                if rule.kind is Kind.PLACES:
                    held.give_back(place, self._tab(rule, now_ms), 0, 0)

    def _forget_idle(self, now_ms: int) -> None:
        # Between two calls: in the middle of one, somebody still holds an idle tab.
        num = min(self._num_to_look_at, len(self._tabs))
        self._num_to_look_at = 0
        for _ in range(num):
            key, tab = self._tabs.popitem(last=False)
            tab.let_pass(tab.rule, now_ms)
            if tab.used:
                self._tabs[key] = tab

    def _tab(self, rule: Rule, now_ms: int) -> _Tab:
        """As it is now."""
        tab = self._tabs.get(rule.key) or self._new_tab(rule, now_ms)
        if now_ms >= tab.holds_until_ms or tab.rule is not rule:
            tab.let_pass(rule, now_ms)
        return tab

    def _new_tab(self, rule: Rule, now_ms: int) -> _Tab:
        tab = self._tabs[rule.key] = _Tab(rule, now_ms)
        self._num_to_look_at += _NUM_LOOKED_AT_PER_NEW_RULE
        return tab

    def _is_held(self, rule: Rule) -> bool:
        if not rule.may_come_back:
            return False
        claims = (held.claim for held in self._open.values())
        return any(each.key == rule.key for claim in claims for each in claim.rules)

    def _used(self, rule: Rule, now_ms: int) -> int:
        return self._tab(rule, now_ms).used if rule.key in self._tabs else 0


def _reading(rules: tuple[Rule, ...], tabs: Iterable[_Tab], now_ms: int) -> Reading:
    return Reading(rules, [tab.used for tab in tabs], now_ms)
