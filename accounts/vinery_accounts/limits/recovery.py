"""Facts from the usage records for a limiter: baselines of use, and leases of dead processes.

A limiter that has lost its memory begins with baselines: how much of each quota was used since the
window began, and about how full each bucket is.

Requests that ran when the baselines were read have no usage record before they end. So the
baselines of each quota are read again, soon at first and then less and less often. That is always
safe: a baseline only raises the use, and recorded tokens were used.

In Redis, the lease of a dead process counts as used until the usage records show the actual use.
Then the process that has found the usage journal settles the lease.
"""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from operator import add
from typing import Any, Final, NamedTuple

from django.conf import settings
from django.db.models import Count, Max, Model, QuerySet, Sum

from vinery_accounts.base.limit_table import COST_SCALE
from vinery_accounts.limits import windows
from vinery_accounts.limits.reservations import (
    NO_COSTS,
    ActualUsage,
    Costs,
    UsageBaseline,
    num_used,
)
from vinery_accounts.limits.rulebook import successors_of
from vinery_accounts.limits.rules import END_USER, PLATFORM, SCALE, Kind, Rule
from vinery_accounts.models.usage import UsageRecord, UsageSlice
from vinery_accounts.usage import retention
from vinery_accounts.usage.periods import round_down, round_up
from vinery_accounts.usage.rollups import DAY_S, LEVELS, MINUTE_S, ROLLUP_DIMENSIONS, coarsest

_COLUMNS: Final = {
    "organization": "organization_id",
    "project": "project_id",
    "user": "user_id",
    "key": "key_id",
    "model": "model",
}
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
    by_period: defaultdict[int, list[Rule]] = defaultdict(list)
    for rule in rules:
        if rule.kind is Kind.BUCKET:
            by_period[rule.window.period_ms].append(rule)
    baselines = []
    for period_ms, buckets in by_period.items():
        since_ms = now_ms - _NUM_PERIODS_READ * period_ms
        for rule, (used, at_ms) in _used_of_buckets(buckets, since_ms).items():
            used = windows.used_after(used, rule.amount, at_ms, now_ms, rule.tick_ms)
            baselines.append(UsageBaseline(rule, num_used(rule, used), now_ms))
    return [baseline for baseline in baselines if baseline.num_used]


def _used_of_buckets(rules: Sequence[Rule], since_ms: int) -> dict[Rule, tuple[int, int]]:
    """Return the fixed-point units used at the start of the last request of each rule, and that
    time."""
    found: dict[Rule, tuple[int, int]] = {}
    rules_of: defaultdict[str, list[Rule]] = defaultdict(list)
    for rule in rules:
        rules_of[rule.scope].append(rule)
    scopes = dict(rules_of)
    for old, successors in successors_of(_key_ids(rules)).items():
        binding = (f"key:{key_id}" for key_id in (old, *successors))
        scopes[f"key:{old}"] = [rule for scope in binding for rule in rules_of[scope]]
    amounts = ("num_prompt_tokens", "num_output_tokens", "weighted_tokens", "cost")
    rows = _records(_Part(0, since_ms)).order_by("created_at", "id")
    columns = rows.values_list("created_at", *amounts, "end_user", *_COLUMNS.values())
    for at, num_prompt, num_output, weighted, cost, end_user, *owners in columns.iterator():
        at_ms = round(at.timestamp() * _MS)
        costs = _costs_of(1, num_prompt, num_output, weighted, cost)
        named = dict(zip(_COLUMNS, owners, strict=True))
        own = (PLATFORM, *(f"{kind}:{owner}" for kind, owner in named.items()))
        bound = [rule for scope in own for rule in scopes.get(scope, ())]
        if end_user:
            of_each = scopes.get(f"{END_USER}:{named['project']}", ())
            bound += [rule.of_end_user(str(end_user)) for rule in of_each]
        for rule in bound:
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
        own = _used_since(at_ms, _COLUMNS.get(kind), {*owners, *map(str, chains)})
        used = defaultdict(lambda: NO_COSTS, own)
        for old, successors in chains.items():
            for key_id in map(str, successors):
                used[key_id] = _sum(used[key_id], own.get(str(old), NO_COSTS))
        found |= {rule: num_used(rule, used[rule.owner][rule.column]) for rule in rules}
    return found


def _key_ids(rules: Iterable[Rule]) -> set[int]:
    return {int(rule.owner) for rule in rules if rule.scope_kind == "key"}


# -- The usage of owners. Whole hours and days come from roll-ups, which equal the records. Only the
# partial hour at the beginning is read from minutes and records. Where these have been deleted, the
# beginning moves down to the hour or the day.

# From records to roll-ups of days, by the unit in seconds.
_TABLES: Final[dict[int, type[Model]]] = {0: UsageRecord, **LEVELS}
_KeptSince = Mapping[type[Model], datetime]


class _Part(NamedTuple):
    """A period that is read from roll-ups of `unit_s`; 0: from records. `end_ms` is exclusive;
    None leaves it open."""

    unit_s: int
    start_ms: int
    end_ms: int | None = None


def _used_since(
    since_ms: int, column: str | None = None, owners: Collection[object] = ()
) -> dict[str, Costs]:
    """Return the usage since a Unix time in milliseconds, by owner. `column` is the usage column
    with the owner; None sums all usage, with the owner "". Owners without usage are missing."""
    used: defaultdict[str, Costs] = defaultdict(lambda: NO_COSTS)
    parts = list(_parts(since_ms, retention.all_kept_since()))
    several = sorted(owners, key=str)
    for at in range(0, len(several) if column else 1, _OWNERS_IN_A_QUERY):
        for part in parts:
            for owner, *sums in _read(part, column, several[at : at + _OWNERS_IN_A_QUERY]):
                used[str(owner)] = _sum(used[str(owner)], _costs_of(*sums))
    return dict(used)


def _used_by_end_users(since_ms: int, project_id: str) -> dict[str, Costs]:
    """Return the usage of a project since a Unix time in milliseconds, by end user: of the latest
    end users, the last at the end. Roll-ups have no end users: deleted records are missing."""
    sums = _sums(Count("id"))
    rows = _records(_Part(0, since_ms)).filter(project_id=project_id).exclude(end_user="")
    last = rows.values("end_user").annotate(last=Max("created_at"), **sums).order_by("-last")
    found = last.values_list("end_user", *sums)[:_MAX_END_USERS]
    return {end_user: _costs_of(*amounts) for end_user, *amounts in reversed(list(found))}


def _costs_of(
    num_requests: Any, num_prompt: Any, num_output: Any, weighted: Any, cost: Any
) -> Costs:
    """The costs of sums, which are None without rows, and decimals on PostgreSQL."""
    counts = [int(num or 0) for num in (num_prompt, num_output, num_requests)]
    usage = ActualUsage(*counts[:2], num_requests=counts[2])
    return usage.costs_charged(round((weighted or 0) * SCALE), round((cost or 0) * COST_SCALE))


def _sum(some: Costs, more: Costs) -> Costs:
    return tuple(map(add, some, more))


def _parts(since_ms: int, kept_since: _KeptSince) -> Iterator[_Part]:
    def is_whole(unit_s: int, at_ms: int) -> bool:
        return kept_since[_TABLES[unit_s]] <= _moment(at_ms)

    # The latest time up to the beginning at which a complete table has a border.
    borders = [(unit_s, round_down(since_ms, unit_s * _MS or 1)) for unit_s in _TABLES]
    start_ms = next((at_ms for unit_s, at_ms in borders if is_whole(unit_s, at_ms)), borders[-1][1])
    for unit_s, coarser_s in pairwise(_TABLES):
        end_ms = round_up(start_ms, coarser_s * _MS)
        if start_ms < end_ms:
            whole_s = (each for each in (unit_s, MINUTE_S, 0) if is_whole(each, start_ms))
            yield _Part(next(whole_s, unit_s), start_ms, end_ms)
        start_ms = end_ms
    yield _Part(DAY_S, start_ms)


def _read(part: _Part, column: str | None, owners: Collection[object]) -> Iterable[Any]:
    """Return rows of an owner and the sums of `_sums`."""
    rows = _rollups(part, column, owners) if part.unit_s else _records(part)
    sums = _sums(Sum("num_taken") if part.unit_s else Count("id"))
    if column is None:
        totals = rows.aggregate(**sums)
        return [("", *(totals[name] for name in sums))]
    whose = f"slice__{column}" if part.unit_s else column
    of_owners = rows.filter(**{f"{whose}__in": owners}).values(whose)
    found: Iterable[Any] = of_owners.annotate(**sums).values_list(whose, *sums)
    return found


def _records(part: _Part) -> QuerySet[Any]:
    # Requests that no engine accepted have no tokens, and limits did not count them.
    since = _moment(part.start_ms)
    rows = UsageRecord.objects.filter(num_prompt_tokens__gt=0, created_at__gte=since).order_by()
    return rows if part.end_ms is None else rows.filter(created_at__lt=_moment(part.end_ms))


def _rollups(part: _Part, column: str | None, owners: Collection[object]) -> QuerySet[Any]:
    dimensions = coarsest(ROLLUP_DIMENSIONS[part.unit_s], {column} if column else set())
    slices = UsageSlice.objects.filter(dimensions=dimensions)
    if column:
        slices = slices.filter(**{f"{column}__in": owners})
    rows = LEVELS[part.unit_s]._default_manager.filter(
        slice__in=slices, start_s__gte=part.start_ms // _MS
    )
    return rows if part.end_ms is None else rows.filter(start_s__lt=part.end_ms // _MS)


def _sums(num_requests: Any) -> dict[str, Any]:
    return {
        "sum_requests": num_requests,
        "sum_inputs": Sum("num_prompt_tokens"),
        "sum_outputs": Sum("num_output_tokens"),
        "sum_weighted": Sum("weighted_tokens"),
        "sum_cost": Sum("cost"),
    }


def _moment(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / _MS, UTC)


# -- When to read baselines ---------------------------------------------------------------------


class _NextRead(NamedTuple):
    """When to read the baseline of a quota again, and the pause since the last time."""

    at_s: float
    pause_s: float


class ReconciliationSchedule:
    """When to read the baselines of each quota, by the keys of the rules, and of buckets."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next: dict[str, _NextRead] = {}
        self._buckets_at_s = math.inf

    @property
    def are_buckets_due(self) -> bool:
        return self._clock() >= self._buckets_at_s

    def due(self, quotas: Iterable[Rule]) -> list[Rule]:
        """Return the quotas that were never restored or are due again. A shadow rule is restored
        once: it does not count requests above its amount, and usage records do."""
        now_s, known = self._clock(), self._next
        return [
            rule
            for rule in quotas
            if (found := known.get(rule.key)) is None
            or (found.at_s <= now_s and not rule.is_shadow)
        ]

    def knows(self, rule: Rule) -> bool:
        return rule.limit_key in self._next

    def note_restored(self, rules: Iterable[Rule]) -> None:
        now_s = self._clock()
        for rule in rules:
            before = self._next.get(rule.key)
            pause_s = FIRST_PAUSE_S
            if before is not None:
                pause_s = min(_PAUSE_GROWTH * before.pause_s, LONGEST_PAUSE_S)
            self._next[rule.key] = _NextRead(now_s + pause_s, pause_s)

    def take_buckets(self) -> bool:
        if not self.are_buckets_due:
            return False
        self._buckets_at_s = math.inf
        return True

    def read_soon(self, rules: Iterable[Rule]) -> None:
        """Read the baselines of these rules and of all buckets soon: a request has ended that the
        limiter does not know."""
        at_s = self._clock() + FIRST_PAUSE_S
        self._buckets_at_s = min(self._buckets_at_s, at_s)
        for rule in rules:
            before = self._next.get(rule.limit_key)
            if before is not None:
                self._next[rule.limit_key] = _NextRead(min(before.at_s, at_s), FIRST_PAUSE_S)

    def keep(self, quotas: Iterable[Rule]) -> None:
        """Forget all other quotas. A quota that comes back was not counted meanwhile, and is
        new."""
        for key in self._next.keys() - {rule.key for rule in quotas}:
            del self._next[key]

    def forget(self) -> None:
        self._next.clear()


# -- Leases of dead processes -------------------------------------------------------------------


def settle_dead_leases(request_ids: Sequence[str]) -> None:
    """Settle the leases of these requests in Redis by their usage records, which must be stored. A
    settled lease stays as it is. While Redis is unavailable, reservations count as used until their
    window is over. Raises `django.db.Error`."""
    if settings.VINERY_REDIS_URL and request_ids:
        from vinery_accounts.limits.redis import settle  # 5 MB that few servers need

        settle(settings.VINERY_REDIS_URL, request_ids)


def costs_by_id(request_ids: Sequence[str]) -> Iterable[tuple[str, Costs]]:
    columns = ("request_id", "num_prompt_tokens", "num_output_tokens", "weighted_tokens", "cost")
    rows = UsageRecord.objects.filter(request_id__in=request_ids).values_list(*columns)
    for request_id, num_prompt, num_output, weighted, cost in rows:
        # A request that no engine has run has no tokens, and is not counted.
        yield request_id, _costs_of(int(num_prompt > 0), num_prompt, num_output, weighted, cost)
