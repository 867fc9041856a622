"""What a limiter answers: leases, grants, denials, and how full everything is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import structs

from accounts.limits import buckets, calendar
from accounts.limits.rules import GRAINS, Claim, Costs, Kind, Rule

# A place becomes free when somebody else's answer ends, and nobody knows when.
PLACE_WAIT_S = 1.0


class Level(msgspec.Struct, frozen=True):
    """How much of a rule is used.

    `num_remaining` is negative when more was used than reserved. `reset_s` is the time until
    nothing is used any more, None when time alone does not bring that about.
    """

    rule: Rule
    num_used: int
    reset_s: float | None

    @property
    def num_remaining(self) -> int:
        """What is left now."""
        return self.rule.amount - self.num_used


class Reading(msgspec.Struct, frozen=True):
    """All levels of a claim at one moment, worked out only for whoever looks."""

    rules: tuple[Rule, ...]
    used: Sequence[int]  # grains
    now_ms: int

    @property
    def levels(self) -> tuple[Level, ...]:
        """In the order of the rules."""
        pairs = zip(self.rules, self.used, strict=True)
        return tuple(level_of(rule, used, self.now_ms) for rule, used in pairs)


NOT_READ = Reading((), (), 0)


class Denial(msgspec.Struct, frozen=True):
    """A refusal, by the rule that would refuse longest.

    `num_needed` is what was asked of that rule. `wait_s` None: waiting does not help.
    `is_enforced`: of this quota requests that run have reserved some, and may give it back.
    """

    rule: Rule
    level: Level
    num_needed: int
    wait_s: float | None
    reading: Reading = NOT_READ
    is_enforced: bool = False

    @property
    def is_too_large(self) -> bool:
        """Whether it would not even fit if nothing were used, but something smaller would."""
        rule = self.rule
        return rule.metric.is_of_tokens and self.num_needed > rule.amount > 0

    @property
    def is_quota(self) -> bool:
        """Whether to tell that a quota is used up, rather than to try again in a moment."""
        return not self.is_too_large and (self.rule.is_quota or self.wait_s is None)


class Lease(msgspec.Struct, frozen=True):
    """A request may run, and its reservation stands until it is settled.

    `shadow_denials`: what shadow rules would have refused. `is_local`: the shared store was
    away, and the reservation is known to this process alone; `is_uncounted`: to nobody.
    """

    claim: Claim
    reading: Reading
    shadow_denials: tuple[Denial, ...] = ()
    is_local: bool = False
    is_uncounted: bool = False

    @property
    def id(self) -> str:
        """The request's id."""
        return self.claim.lease_id


class Grant(msgspec.Struct, frozen=True):
    """How many more tokens of an answer may be made: from none to all that were asked for.

    `denial` says what is used up, when it is fewer than asked. `is_lost`: nobody knows the
    lease any more (it was settled, or not renewed in time), and nothing was granted.
    """

    num_output_tokens: int
    denial: Denial | None = None
    shadow_denials: tuple[Denial, ...] = ()
    is_lost: bool = False


LOST = Grant(0, is_lost=True)


class Floor(msgspec.Struct, frozen=True):
    """At least this much of a rule is used, according to the books.

    `since_ms` is the start of the window that was counted, in Unix milliseconds; it says
    nothing about another window. Of a bucket it is when so much was used, and it has refilled
    since. Budgets for ever ignore it. `is_again`: whoever hears it has heard of this rule
    before, and has counted since.
    """

    rule: Rule
    num_used: int
    since_ms: int = 0
    is_again: bool = False


def level_of(rule: Rule, used: int, now_ms: int) -> Level:
    """The level of a rule of which so many grains are used."""
    return Level(rule, num_used(used), reset_s(rule, used, now_ms))


def num_used(used: int) -> int:
    """Grains in units, upwards: a part of a token is not there to be used."""
    return -(-used // GRAINS)


def reset_s(rule: Rule, used: int, now_ms: int) -> float | None:
    """Until nothing of a rule is used any more; None when time alone does not bring it about."""
    match rule.kind:
        case Kind.BUCKET:
            return buckets.full_after_s(used, rule.amount)
        case Kind.CALENDAR:
            return _until_next_window_s(rule, now_ms)
        case Kind.PLACES | Kind.TOTAL:
            return None


def reset_ms(rule: Rule, used: int, now_ms: int) -> int | None:
    """The same in whole milliseconds, downwards, as headers tell it."""
    if rule.kind is Kind.BUCKET:
        if used <= 0:
            return 0
        return used // rule.amount if rule.amount else None
    if rule.kind is Kind.CALENDAR:
        return calendar.boundaries_at(rule, now_ms)[2] - now_ms
    return None


def behind(denial: Denial, claim: Claim) -> Denial:
    """What is told to a claim that stands behind the one of this denial. They share the rule;
    what else binds the one in front is nobody else's business."""
    needed = num_used(claim.costs()[denial.rule.column])
    return structs.replace(denial, num_needed=needed, reading=NOT_READ)


def binding_denial(denials: Iterable[Denial]) -> Denial:
    """The one that would refuse longest."""
    return max(denials, key=_how_long)


def denial_of(rule: Rule, used: int, cost: int, reading: Reading) -> Denial:
    """Why a cost does not fit: `used` and `cost` in grains."""
    return Denial(
        rule,
        level_of(rule, used, reading.now_ms),
        -(-cost // GRAINS),
        _wait_s(rule, used, cost, reading.now_ms),
        reading,
    )


def denials_of(indexes: Iterable[int], costs: Costs, reading: Reading) -> tuple[Denial, ...]:
    """The denials of those rules of a reading that refused, by their places in it."""
    return tuple(
        denial_of(reading.rules[i], reading.used[i], costs[reading.rules[i].column], reading)
        for i in indexes
    )


def grant_of(asked: int, fitting: Mapping[int, int], costs: Costs, reading: Reading) -> Grant:
    """What is granted when so many more tokens fit into the rules at these places.

    `costs` are those of one token.
    """
    enforced = {i: num for i, num in fitting.items() if not reading.rules[i].is_shadow}
    granted = max(0, min([asked, *enforced.values()]))
    cut_by = [i for i, num in fitting.items() if num < granted]
    if granted < asked:
        cut_by.append(min(enforced, key=enforced.__getitem__))
    if not cut_by:
        return Grant(granted)
    wanted: Costs = tuple(cost * asked for cost in costs)  # type: ignore[assignment]
    denials = denials_of(cut_by, wanted, reading)
    return Grant(
        granted,
        next((denial for denial in denials if not denial.rule.is_shadow), None),
        tuple(denial for denial in denials if denial.rule.is_shadow),
    )


def _wait_s(rule: Rule, used: int, cost: int, now_ms: int) -> float | None:
    if cost > rule.capacity:
        return None
    match rule.kind:
        case Kind.BUCKET:
            return buckets.wait_s(used, cost, rule.amount)
        case Kind.CALENDAR:
            return _until_next_window_s(rule, now_ms)
        case Kind.PLACES:
            return PLACE_WAIT_S
        case Kind.TOTAL:
            return None


def _until_next_window_s(rule: Rule, now_ms: int) -> float:
    _, _, end_ms, _ = calendar.boundaries_at(rule, now_ms)
    return (end_ms - now_ms) / 1000


def _how_long(denial: Denial) -> tuple[bool, bool, float]:
    is_for_ever = denial.wait_s is None
    return denial.is_too_large, is_for_ever, denial.wait_s or 0.0
