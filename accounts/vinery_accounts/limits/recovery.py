"""Facts from the usage records for a limiter: baselines of use, and leases of dead processes.

A limiter that has lost its memory begins with baselines: how much of each quota was used since the
window began, and about how full each bucket is.

Requests that ran when the baselines were read have no usage record before they end. So the
baselines of quotas are read again, soon at first and then less and less often. That is always
safe: a baseline only raises the use, and recorded tokens were used.

In Redis, the lease of a dead process counts as used until the usage records show the actual use.
Then the process that has found the usage journal settles the lease.
"""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from operator import add
from typing import Any, Final

from django.conf import settings
from django.db.models import Count, Max, QuerySet, Sum

from vinery_accounts.base.limit_table import COST_SCALE
from vinery_accounts.limits import windows
from vinery_accounts.limits.reservations import (
    NO_COSTS,
    ActualUsage,
    Costs,
    UsageBaseline,
    num_used,
)
from vinery_accounts.limits.rulebook import RuleBook, Snapshot, successors_in, successors_of
from vinery_accounts.limits.rules import END_USER, PLATFORM, SCALE, Kind, Rule
from vinery_accounts.models import UsageRecord
from vinery_accounts.usage.entries import Owners
from vinery_accounts.usage.filters import Dimension
from vinery_accounts.usage.reports import Question, exact_sums

_AMOUNTS: Final = ("num_prompt_tokens", "num_output_tokens", "weighted_tokens", "cost")
_MS: Final = 1000
# For how many periods the records of a bucket are read. Before that, the bucket counts as used up:
# this matters only if requests have used more than four fifths of the amount all the time.
_NUM_PERIODS_READ: Final = 5
_OWNERS_IN_A_QUERY: Final = 500
_MAX_END_USERS: Final = 50_000  # of a project: limiters in memory count no more

# Usage records are in the database a second or two after the end of a request.
FIRST_PAUSE_S: Final = 5.0
LONGEST_PAUSE_S: Final = 600.0
_PAUSE_GROWTH: Final = 3.0


# -- Baselines ----------------------------------------------------------------------------------


def read_baselines(rules: Iterable[Rule], now_s: float) -> list[UsageBaseline]:
    """Return the baselines of the used quotas among these rules. Raises `django.db.Error`."""
    since_ms = {rule: windows.quota_window(rule, now_s)[0] for rule in rules if rule.is_quota}
    return [
        UsageBaseline(rule, num_used, windows.quota_window(rule, now_s)[0])
        for rule, num_used in read_use(since_ms).items()
        if num_used
    ]


def read_bucket_baselines(rules: Iterable[Rule], now_s: float) -> list[UsageBaseline]:
    """Return the baselines of the buckets among these rules, without full buckets. A request counts
    as a whole from its start. Raises `django.db.Error`."""
    now_ms = round(now_s * 1000)
    buckets: defaultdict[str, tuple[Rule, ...]] = defaultdict(tuple)
    longest_ms = 0
    for rule in rules:
        if rule.kind is Kind.BUCKET:
            buckets[rule.scope] += (rule,)
            longest_ms = max(longest_ms, rule.window.period_ms)
    if not buckets:
        return []
    book = RuleBook(Snapshot(buckets, successors=successors_in(buckets)))
    baselines = []
    for rule, (used, at_ms) in _used(book, now_ms - _NUM_PERIODS_READ * longest_ms).items():
        used = windows.used_after(used, rule.amount, at_ms, now_ms, rule.tick_ms)
        baselines.append(UsageBaseline(rule, num_used(rule, used), now_ms))
    return [baseline for baseline in baselines if baseline.num_used]


def _used(book: RuleBook, since_ms: int) -> dict[Rule, tuple[int, int]]:
    """Return the fixed-point units used at the start of the last request of each rule, and that
    time."""
    found: dict[Rule, tuple[int, int]] = {}
    names = Owners.__struct_fields__
    rows = _records(since_ms).order_by("created_at", "id")
    columns = rows.values_list("created_at", *_AMOUNTS, "model", "end_user", *names)
    for at, num_prompt, num_output, weighted, cost, model, end_user, *owners in columns.iterator():
        at_ms = round(at.timestamp() * _MS)
        costs = _costs_of(1, num_prompt, num_output, weighted, cost)
        caller = Owners(**dict(zip(names, owners, strict=True)))
        for rule in book.rules_for(caller, str(model), str(end_user)):
            used, before_ms = found.get(rule, (rule.capacity, since_ms))
            left = windows.used_after(used, rule.amount, before_ms, at_ms, rule.tick_ms)
            found[rule] = min(rule.capacity, left + costs[rule.column]), at_ms
    return found


def read_use(since_ms: Mapping[Rule, int]) -> dict[Rule, int]:
    """Return the use of each rule since the rule's time: whole tokens or requests. Rules of end
    users stand for a rule of each end user with any use. A few queries for all scopes of a kind
    with the same time. Raises `django.db.Error`."""
    groups: defaultdict[tuple[str, int], list[Rule]] = defaultdict(list)
    for rule, at_ms in since_ms.items():
        groups[rule.scope_kind, at_ms].append(rule)
    found: dict[Rule, int] = {}
    for (kind, at_ms), rules in groups.items():
        if kind == END_USER:
            found |= {
                rule.of_end_user(name): num_used(rule, costs[rule.column])
                for rule in rules
                for name, costs in _used_by_end_users(at_ms, rule.owner).items()
            }
            continue
        owners = {rule.owner for rule in rules}
        chains = successors_of(_key_ids(rules))
        own = _used_since(at_ms, kind, {*owners, *map(str, chains)})
        used = defaultdict(lambda: NO_COSTS, own)
        for old, successors in chains.items():
            for key_id in map(str, successors):
                used[key_id] = _sum(used[key_id], own.get(str(old), NO_COSTS))
        found |= {rule: num_used(rule, used[rule.owner][rule.column]) for rule in rules}
    return found


def _key_ids(rules: Iterable[Rule]) -> set[int]:
    return {int(rule.owner) for rule in rules if rule.scope_kind == "key"}


def _used_since(since_ms: int, kind: str, owners: Iterable[str]) -> dict[str, Costs]:
    """Return the usage since a Unix time in milliseconds, by owner. The platform is the owner "".
    Owners without usage are missing."""
    by = () if kind == PLATFORM else (Dimension(kind),)
    # Clocks of hosts differ, so records may be of later than now.
    since, until = _moment(since_ms), datetime.now(UTC) + timedelta(days=1)
    used: dict[str, Costs] = {}
    several = sorted(owners)
    for at in range(0, len(several), _OWNERS_IN_A_QUERY):
        filters = {each: frozenset(several[at : at + _OWNERS_IN_A_QUERY]) for each in by}
        question = Question(since=since, until=until, filters=filters, visible=None)
        for owner, sums in exact_sums(question, by, ("num_taken", *_AMOUNTS)).items():
            used["".join(map(str, owner))] = _costs_of(*sums)
    return used


def _used_by_end_users(since_ms: int, project_id: str) -> dict[str, Costs]:
    """Return the usage of a project since a Unix time in milliseconds, by end user: of the latest
    end users, the last at the end. Roll-ups have no end users: deleted records are missing."""
    sums = {"num": Count("id"), **{f"sum_{name}": Sum(name) for name in _AMOUNTS}}
    rows = _records(since_ms).filter(project_id=project_id).exclude(end_user="")
    last = rows.values("end_user").annotate(last=Max("created_at"), **sums).order_by("-last")
    found = last.values_list("end_user", *sums)[:_MAX_END_USERS]
    return {end_user: _costs_of(*amounts) for end_user, *amounts in reversed(list(found))}


def _costs_of(
    num_requests: Any, num_prompt: Any, num_output: Any, weighted: Any, cost: Any
) -> Costs:
    usage = ActualUsage(int(num_prompt), int(num_output), num_requests=int(num_requests))
    return usage.costs_charged(round(weighted * SCALE), round(cost * COST_SCALE))


def _sum(some: Costs, more: Costs) -> Costs:
    return tuple(map(add, some, more))


def _records(since_ms: int) -> QuerySet[Any]:
    # Requests that no engine accepted have no tokens, and limits did not count them.
    since = _moment(since_ms)
    return UsageRecord.objects.filter(num_prompt_tokens__gt=0, created_at__gte=since).order_by()


def _moment(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / _MS, UTC)


# -- When to read baselines ---------------------------------------------------------------------


class ReconciliationSchedule:
    """When to read the baselines of quotas and of buckets. After a new quota, all are read soon,
    and then less and less often."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: set[str] = set()  # the keys of quotas whose baselines were restored
        self._pause_s = FIRST_PAUSE_S
        self._quotas_at_s = self._buckets_at_s = math.inf

    @property
    def are_buckets_due(self) -> bool:
        return self._clock() >= self._buckets_at_s

    def due(self, quotas: Iterable[Rule]) -> list[Rule]:
        """Return the quotas that were never restored or are due again. A shadow rule is restored
        once: it does not count requests above its amount, and usage records do."""
        are_due, known = self._clock() >= self._quotas_at_s, self._known
        return [
            rule for rule in quotas if rule.key not in known or (are_due and not rule.is_shadow)
        ]

    def knows(self, rule: Rule) -> bool:
        return rule.limit_key in self._known

    def note_restored(self, rules: Iterable[Rule]) -> None:
        if keys := {rule.key for rule in rules}:
            longer_s = min(_PAUSE_GROWTH * self._pause_s, LONGEST_PAUSE_S)
            self._pause_s = longer_s if keys <= self._known else FIRST_PAUSE_S
            self._quotas_at_s = self._clock() + self._pause_s
            self._known |= keys

    def take_buckets(self) -> bool:
        if not self.are_buckets_due:
            return False
        self._buckets_at_s = math.inf
        return True

    def read_soon(self) -> None:
        """Read all baselines soon: a request has ended that the limiter does not know."""
        self._pause_s = FIRST_PAUSE_S
        at_s = self._clock() + FIRST_PAUSE_S
        self._quotas_at_s = min(self._quotas_at_s, at_s)
        self._buckets_at_s = min(self._buckets_at_s, at_s)

    def keep(self, quotas: Iterable[Rule]) -> None:
        """Forget all other quotas. A quota that comes back was not counted meanwhile, and is
        new."""
        self._known &= {rule.key for rule in quotas}


# -- Leases of dead processes -------------------------------------------------------------------


def settle_dead_leases(request_ids: Sequence[str]) -> None:
    """Settle the leases of these requests in Redis by their usage records, which must be stored. A
    settled lease stays as it is. While Redis is unavailable, reservations count as used until their
    window is over. Raises `django.db.Error`."""
    if settings.VINERY_REDIS_URL and request_ids:
        from vinery_accounts.limits.redis import settle  # 5 MB that few servers need

        settle(settings.VINERY_REDIS_URL, request_ids)


def costs_by_id(request_ids: Sequence[str]) -> Iterable[tuple[str, Costs]]:
    rows = UsageRecord.objects.filter(request_id__in=request_ids).values_list(
        "request_id", *_AMOUNTS
    )
    for request_id, num_prompt, num_output, weighted, cost in rows:
        # A request that no engine has run has no tokens, and is not counted.
        yield request_id, _costs_of(int(num_prompt > 0), num_prompt, num_output, weighted, cost)
