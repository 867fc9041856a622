"""The limiter of one process.

Without Redis, each of several processes has an equal share of each amount, so that all together
never grant more than the amount. One process cannot use what the others leave. A share is at least
one, or an amount below the number of processes would be of no use. A starting process takes over an
equal part of the use in the usage records, while the others keep the rest of their shares: each
start of a single process may grant up to a share more.

No method awaits anything between its first and last change. When a few new rules have come, the
limiter forgets an unused rule. Clients name any number of end users: of too many rules, the limiter
forgets the least recently used rules of end users, even with use.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

import msgspec
from msgspec import structs

from vinery_accounts.limits import windows
from vinery_accounts.limits.reservations import (
    LEASE_TTL_S,
    LOST,
    ActualUsage,
    Denial,
    Grant,
    Lease,
    LeaseExists,
    Level,
    Reading,
    ReservationRequest,
    UsageBaseline,
    binding_denial,
    denials_of,
    grant_of,
    level_of,
)
from vinery_accounts.limits.rules import Kind, Rule

# More than one, so that idle counters go faster than new counters come.
_NUM_CHECKED_PER_NEW_COUNTER: Final = 2

# Fifty MB. Beyond that, counters of end users are forgotten.
_MAX_COUNTERS: Final = 50_000

_NEVER_MS: Final = 2**63
_LEASE_TTL_MS: Final = round(LEASE_TTL_S * 1000)


@dataclass(eq=False, slots=True)
class _Counter:
    """How much of a rule is used, in fixed-point units, and at or since which Unix time in ms."""

    rule: Rule
    at_ms: int  # of a bucket: the time of `used`; of a quota: the window's start
    used: int = 0
    lows: windows.Lows = field(default_factory=windows.Lows)
    is_bucket: bool = field(init=False)
    is_calendar: bool = field(init=False)
    has_drained: bool = field(init=False)  # since the last addition to it
    # Before that, time alone changes nothing. A bucket refills all the time.
    holds_until_ms: int = field(init=False)

    def __post_init__(self) -> None:
        self.is_bucket = self.has_drained = self.rule.kind is Kind.BUCKET
        self.is_calendar = self.rule.kind is Kind.CALENDAR
        self.holds_until_ms = 0 if self.is_bucket or self.is_calendar else _NEVER_MS

    def update(self, rule: Rule, now_ms: int) -> None:
        """Bring `used` to a later time. From then on the rule may have another amount."""
        if self.is_bucket:
            if now_ms > self.at_ms:
                former, before_ms = self.used, self.at_ms
                self.used = windows.used_after(
                    former, self.rule.amount, before_ms, now_ms, rule.tick_ms
                )
                self.has_drained |= self.used < former
                self.at_ms = now_ms
            else:
                # The clock was set back: time that passes twice counts once, but at most a period,
                # or a clock that was wrong by a day would stop the bucket for a day.
                self.at_ms = min(self.at_ms, now_ms + rule.window.period_ms)
        elif now_ms >= self.holds_until_ms:
            _, self.at_ms, self.holds_until_ms, _ = windows.boundaries_at(rule, now_ms)
            self.used = 0
        self.rule = rule

    def add(self, cost: int, number: int) -> None:
        if cost and self.has_drained:
            self.has_drained = False
            self.lows.note(number, self.used)
        self.used += cost


class _OpenLease(msgspec.Struct):
    rules: tuple[Rule, ...]
    expires_at_ms: int
    reserved: list[int]  # in all windows
    windows_ms: list[int]  # the start of the last window with a reservation
    reserved_in_window: list[int]
    # The indexes of shadow rules that would have refused the request: it does not count there.
    left: set[int]
    number: int  # of the lease's first addition; later ones count as parts of it

    def use_rules(self, rules: tuple[Rule, ...]) -> None:
        """Count by these rules from now on. The lease may have reserved of some only."""
        if rules is not self.rules:
            if len(rules) != len(self.rules):
                keys = {rule.key for rule in self.rules}
                rules = tuple(rule for rule in rules if rule.key in keys)
            self.rules = rules

    def reserve(self, index: int, counter: _Counter, cost: int, number: int) -> None:
        if not cost or index in self.left:
            return
        rule = counter.rule
        if rule.is_shadow and cost > rule.capacity - counter.used:
            self.left.add(index)
            cost = max(0, rule.capacity - counter.used)
        if counter.is_calendar and counter.at_ms != self.windows_ms[index]:
            self.windows_ms[index] = counter.at_ms
            self.reserved_in_window[index] = 0
        counter.add(cost, number)
        self.reserved[index] += cost
        self.reserved_in_window[index] += cost

    def settle(self, index: int, counter: _Counter, cost: int, number: int) -> None:
        """Replace the reservation of a rule by the actual cost, unless the window is over. The use
        beyond the reservation is an addition of this number."""
        unused = self.reserved[index] - cost
        if unused < 0 and counter.rule.is_shadow:
            return  # the lease may have left the rule early, and the rest was never counted
        if counter.is_bucket and unused < 0:
            counter.add(-unused, number)
        elif counter.is_bucket:
            counter.used -= counter.lows.give_back(self.number, unused, counter.used)
        elif not counter.is_calendar or counter.at_ms == self.windows_ms[index]:
            counter.used = max(0, counter.used - min(unused, self.reserved_in_window[index]))


class MemoryLimiter:
    """`Limiter` for one process and one event loop."""

    def __init__(self, num_processes: int = 1, *, clock: Callable[[], float] = time.time) -> None:
        """With several processes, levels and denials are those of this process's shares. `clock`
        returns Unix time in seconds. Raises ValueError for less than one process."""
        if num_processes < 1:
            raise ValueError("num_processes must be at least 1")
        self._num_processes = num_processes
        self._clock = clock
        self._counters: OrderedDict[str, _Counter] = OrderedDict()
        self._open: dict[str, _OpenLease] = {}  # neither settled nor expired
        self._num_to_check = 0
        self._num_additions = 0  # to all rules together

    async def acquire(self, request: ReservationRequest) -> Lease | Denial:
        now_ms = self._now_ms()
        if request.lease_id in self._open:
            raise LeaseExists(request.lease_id)
        rules = self._own_rules(request.rules)
        costs = request.costs()
        counters = [self._counter(rule, now_ms) for rule in rules]
        reserved = [costs[rule.column] for rule in rules]
        refusing = [
            index
            for index, (counter, cost) in enumerate(zip(counters, reserved, strict=True))
            if cost and counter.used + cost > counter.rule.capacity
        ]
        denials: tuple[Denial, ...] = ()
        if refusing:
            reading = Reading(rules, [counter.used for counter in counters], now_ms)
            denials = denials_of(refusing, costs, reading)
            if not all(denial.rule.is_shadow for denial in denials):
                held = [index for index in refusing if self._is_held(rules[index])]
                return binding_denial(denials_of(refusing, costs, reading, held))
            reserved = [0 if at in refusing else cost for at, cost in enumerate(reserved)]
        self._num_additions = number = self._num_additions + 1
        for counter, cost in zip(counters, reserved, strict=True):
            counter.add(cost, number)
        starts_ms, left = [counter.at_ms for counter in counters], set(refusing)
        self._open[request.lease_id] = _OpenLease(
            rules, now_ms + _LEASE_TTL_MS, reserved, starts_ms, reserved.copy(), left, number
        )
        reading = Reading(rules, [counter.used for counter in counters], now_ms)
        return Lease(request, reading, denials)

    async def extend(self, lease: Lease, num_output_tokens: int) -> Grant:
        now_ms = self._now_ms()
        held = self._open.get(lease.id)
        if held is None:
            return LOST
        held.use_rules(self._own_rules(lease.request.rules))
        rules = held.rules
        costs = lease.request.costs_per_output_token()
        counters = [self._counter(rule, now_ms) for rule in rules]
        fitting = {
            index: (counter.rule.capacity - counter.used) // cost
            for index, counter in enumerate(counters)
            if (cost := costs[counter.rule.column]) and index not in held.left
        }
        before = Reading(rules, [counter.used for counter in counters], now_ms)
        grant = grant_of(num_output_tokens, fitting, costs, before)
        self._num_additions += 1
        for index, counter in enumerate(counters):
            cost = costs[counter.rule.column] * grant.num_output_tokens
            held.reserve(index, counter, cost, self._num_additions)
        return grant

    async def settle(self, lease: Lease, usage: ActualUsage) -> None:
        self.settle_now(lease, usage)

    def settle_now(self, lease: Lease, usage: ActualUsage) -> None:
        """Settle without a task, which would cost as much again."""
        now_ms = self._now_ms()
        held = self._open.pop(lease.id, None)
        if held is None:
            return
        held.use_rules(self._own_rules(lease.request.rules))
        costs = usage.costs(lease.request.weights)
        self._num_additions += 1
        for index, rule in enumerate(held.rules):
            cost = costs[rule.column]
            if cost != held.reserved[index]:
                held.settle(index, self._counter(rule, now_ms), cost, self._num_additions)

    async def renew(self, leases: Sequence[Lease]) -> None:
        """See `Limiter`. Only this expires leases: the process may have stopped for a while."""
        now_ms = self._now_ms()
        for lease in leases:
            held = self._open.get(lease.id)
            if held is not None:
                held.expires_at_ms = now_ms + _LEASE_TTL_MS
        dead = [id_ for id_, held in self._open.items() if held.expires_at_ms <= now_ms]
        for lease_id in dead:
            held = self._open.pop(lease_id)
            for index, rule in enumerate(held.rules):
                if rule.kind is Kind.CONCURRENCY:
                    held.settle(index, self._counter(rule, now_ms), 0, 0)

    async def release(self, lease_ids: Sequence[str]) -> None:
        """Do nothing: leases of this process end with it."""

    async def levels(self, rules: Sequence[Rule]) -> tuple[Level, ...]:
        now_ms = self._now_ms()
        own = self._own_rules(tuple(rules))
        return tuple(level_of(rule, self._used(rule, now_ms), now_ms) for rule in own)

    async def restore(self, baselines: Iterable[UsageBaseline]) -> None:
        now_ms = self._now_ms()
        if self._num_processes > 1:
            baselines = [_share_of_baseline(each, self._num_processes) for each in baselines]
        for baseline in baselines:
            rule, units = baseline.rule, baseline.num_used * baseline.rule.scale
            counter = self._counter(rule, now_ms)
            if rule.kind is Kind.TOTAL or (
                rule.kind is Kind.CALENDAR and counter.at_ms == baseline.since_ms
            ):
                counter.used = max(counter.used, units)
            elif rule.kind is Kind.BUCKET:
                units = windows.used_after(
                    units, rule.amount, baseline.since_ms, now_ms, rule.tick_ms
                )
                missing = units - counter.used
                # A baseline is rounded up, and the count of a bucket in use is exact.
                if missing >= rule.scale or (missing > 0 and not counter.used):
                    self._num_additions += 1
                    counter.add(missing, self._num_additions)

    def _now_ms(self) -> int:
        now_ms = int(self._clock() * 1000)
        if self._num_to_check:
            self._forget_idle(now_ms)
        return now_ms

    def _forget_idle(self, now_ms: int) -> None:
        # Between two calls: a call may still use a counter without use.
        num = min(self._num_to_check, len(self._counters))
        self._num_to_check = 0
        for _ in range(num):
            key, counter = self._counters.popitem(last=False)
            counter.update(counter.rule, now_ms)
            is_kept = not counter.rule.end_user or counter.rule.kind is Kind.CONCURRENCY
            if counter.used and (is_kept or len(self._counters) < _MAX_COUNTERS):
                self._counters[key] = counter

    def _counter(self, rule: Rule, now_ms: int) -> _Counter:
        counter = self._counters.get(rule.key)
        if counter is None:
            counter = self._counters[rule.key] = _Counter(rule, now_ms)
            self._num_to_check += _NUM_CHECKED_PER_NEW_COUNTER
        elif rule.end_user:
            self._counters.move_to_end(rule.key)
        if now_ms >= counter.holds_until_ms or counter.rule is not rule:
            counter.update(rule, now_ms)
        return counter

    def _is_held(self, rule: Rule) -> bool:
        return rule.may_be_returned and any(
            each.key == rule.key for held in self._open.values() for each in held.rules
        )

    def _own_rules(self, rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
        return rules if self._num_processes == 1 else _shares_of(rules, self._num_processes)

    def _used(self, rule: Rule, now_ms: int) -> int:
        return self._counter(rule, now_ms).used if rule.key in self._counters else 0


@lru_cache(maxsize=4096)
def _shares_of(rules: tuple[Rule, ...], num_processes: int) -> tuple[Rule, ...]:
    return tuple(_share_of(rule, num_processes) for rule in rules)


def _share_of(rule: Rule, num_processes: int) -> Rule:
    return replace(rule, amount=max(min(1, rule.amount), rule.amount // num_processes))


def _share_of_baseline(baseline: UsageBaseline, num_processes: int) -> UsageBaseline:
    """Return this process's share of the use. After the first baseline, a process counts its own
    use: a later baseline leaves the rest of the share, unless less is left in all."""
    rule = _share_of(baseline.rule, num_processes)
    num_used = -(-baseline.num_used // num_processes)
    if baseline.is_update:
        num_used = max(0, rule.amount - max(0, baseline.rule.amount - baseline.num_used))
    return structs.replace(baseline, rule=rule, num_used=num_used)
