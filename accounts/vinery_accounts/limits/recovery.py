"""What a limiter learns from the usage records: baselines of use, and leases of dead processes.

A limiter that has lost its memory begins with baselines: how much of each quota was used since its
window began, and about how full each bucket is.

Requests that ran when the baselines were read are in no usage record yet. Their records come when
they end. So the baselines of each quota are read again, soon at first and then less and less often.
That is always safe, because a baseline only raises what is used, and what is in a record was used.

In Redis, the lease of a dead process counts as used until the usage records show what was really
used. Then the process that has found the dead one's usage journal settles the lease.
"""

import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from math import ceil
from typing import Final, NamedTuple

import msgspec
from django.conf import settings
from redis import Redis
from redis.exceptions import RedisError

from vinery_accounts.limits import windows
from vinery_accounts.limits.redis import DEFAULT_PREFIX, lease_key, source
from vinery_accounts.limits.reservations import (
    NO_USAGE,
    STORE_DEADLINE_S,
    ActualUsage,
    Costs,
    UsageBaseline,
    num_used,
)
from vinery_accounts.limits.rulebook import successors_of
from vinery_accounts.limits.rules import END_USER, PLATFORM, SCALE, Kind, Metric, Rule
from vinery_accounts.models.usage import UsageRecord
from vinery_accounts.usage.used import Use, each_since, used_by_end_users, used_since

logger = logging.getLogger(__name__)

_COLUMNS: Final = {
    "organization": "organization_id",
    "project": "project_id",
    "user": "user_id",
    "key": "key_id",
    "model": "model",
}
_NO_USE: Final = Use()
# For how many of its periods the records of a bucket are read. Before them it counts as used up.
# That matters only if requests have used more than four fifths of it all the time.
_NUM_PERIODS_READ: Final = 5
_IDS_IN_A_CALL: Final = 500

# Usage records are in the database a second or two after the end of a request.
FIRST_PAUSE_S: Final = 5.0
LONGEST_PAUSE_S: Final = 600.0
_PAUSE_GROWTH: Final = 3.0


# -- Baselines ----------------------------------------------------------------------------------


def read_baselines(rules: Iterable[Rule], now_s: float) -> list[UsageBaseline]:
    """Return the baselines of the quotas among these rules, without those of which nothing is
    used. Raises `django.db.Error`."""
    since_ms = {rule: windows.quota_window(rule, now_s)[0] for rule in rules if rule.is_quota}
    return [
        UsageBaseline(rule, num_used, windows.quota_window(rule, now_s)[0])
        for rule, num_used in read_use(since_ms).items()
        if num_used
    ]


def read_bucket_baselines(rules: Iterable[Rule], now_s: float) -> list[UsageBaseline]:
    """Return the baselines of the buckets among these rules, without those that are full. A
    request counts as a whole from its start. Raises `django.db.Error`."""
    now_ms = round(now_s * 1000)
    by_tick: defaultdict[int, list[Rule]] = defaultdict(list)
    for rule in rules:
        if rule.kind is Kind.BUCKET:
            by_tick[rule.tick_ms].append(rule)
    baselines = []
    for tick_ms, buckets in by_tick.items():
        since_ms = now_ms - _NUM_PERIODS_READ * tick_ms * SCALE
        for rule, (used, at_ms) in _used_of_buckets(buckets, since_ms).items():
            used = windows.used_after(used, rule.amount, at_ms, now_ms, tick_ms)
            baselines.append(UsageBaseline(rule, num_used(used), now_ms))
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
    for at_ms, (end_user, *owners), use in each_since(since_ms, ("end_user", *_COLUMNS.values())):
        named = dict(zip(_COLUMNS, owners, strict=True))
        own = (PLATFORM, *(f"{kind}:{owner}" for kind, owner in named.items()))
        bound = [rule for scope in own for rule in scopes.get(scope, ())]
        if end_user:
            of_each = scopes.get(f"{END_USER}:{named['project']}", ())
            bound += [rule.of_end_user(str(end_user)) for rule in of_each]
        for rule in bound:
            used, before_ms = found.get(rule, (rule.capacity, since_ms))
            left = windows.used_after(used, rule.amount, before_ms, at_ms, rule.tick_ms)
            found[rule] = min(rule.capacity, left + _units(rule.metric, use)), at_ms
    return found


def read_use(since_ms: Mapping[Rule, int]) -> dict[Rule, int]:
    """Return what each rule counts since a time of its own: whole tokens or requests. Rules of end
    users stand for the rule of each that has used something. A few queries for all scopes of a kind
    with the same time. Raises `django.db.Error`."""
    groups: defaultdict[tuple[str, int], list[Rule]] = defaultdict(list)
    for rule, at_ms in since_ms.items():
        groups[rule.scope_kind, at_ms].append(rule)
    found: dict[Rule, int] = {}
    for (kind, at_ms), rules in groups.items():
        if kind == END_USER:
            found |= {
                rule.of_end_user(name): _amount(rule.metric, use)
                for rule in rules
                for name, use in used_by_end_users(at_ms, rule.owner).items()
            }
            continue
        owners = {rule.owner for rule in rules}
        chains = successors_of(_key_ids(rules))
        own = used_since(at_ms, _COLUMNS.get(kind), {*owners, *map(str, chains)})
        used = dict(own)
        for old, successors in chains.items():
            for key_id in map(str, successors):
                used[key_id] = used.get(key_id, _NO_USE) + own.get(str(old), _NO_USE)
        found |= {rule: _amount(rule.metric, used.get(rule.owner, _NO_USE)) for rule in rules}
    return found


def _amount(metric: Metric, use: Use) -> int:
    if metric is Metric.WEIGHTED_TOKENS:
        # A sum of fractions differs a little with their order.
        return ceil(round(use.weighted_tokens, 6))
    return int(getattr(use, f"num_{metric.value}"))


def _units(metric: Metric, use: Use) -> int:
    if metric is Metric.WEIGHTED_TOKENS:
        return round(use.weighted_tokens * SCALE)
    return _amount(metric, use) * SCALE


def _key_ids(rules: Iterable[Rule]) -> set[int]:
    return {int(rule.owner) for rule in rules if rule.scope_kind == "key"}


# -- When to read baselines ---------------------------------------------------------------------


class _NextRead(NamedTuple):
    """When to read the baseline of a quota again, and how long that is after the last time."""

    at_s: float
    pause_s: float


class ReconciliationSchedule:
    """When to read the baselines of each quota, by the keys of the rules, and those of buckets."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next: dict[str, _NextRead] = {}
        self._buckets_at_s = math.inf

    @property
    def are_buckets_due(self) -> bool:
        return self._clock() >= self._buckets_at_s

    def due(self, quotas: Iterable[Rule]) -> list[Rule]:
        """Return the quotas that were never restored, and those whose time has come. A shadow rule
        is restored once: it does not count what it would have refused, and usage records do."""
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

    def hurry(self, rules: Iterable[Rule]) -> None:
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
    settled lease stays as it is. While Redis is unavailable, what the requests had reserved counts
    as used until its window is over. Raises `django.db.Error`."""
    url = settings.VINERY_REDIS_URL
    if not url or not request_ids:
        return
    timeout_s = STORE_DEADLINE_S
    try:
        with closing(
            Redis.from_url(url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s)
        ) as client:
            settle_in_redis(client, request_ids)
    except (RedisError, OSError) as error:
        logger.warning("reservations of dead processes count as used: %s", error)


def settle_in_redis(
    client: Redis, request_ids: Sequence[str], *, prefix: str = DEFAULT_PREFIX
) -> None:
    """Settle the leases on a given server. Raises `RedisError`, OSError and `django.db.Error`."""
    script = client.register_script(source())
    for at in range(0, len(request_ids), _IDS_IN_A_CALL):
        leases = list(_leases_to_settle(request_ids[at : at + _IDS_IN_A_CALL], prefix))
        call = {"operation": "reclaim", "now_ms": 0, "ttl_ms": 0, "leases": leases}
        script(args=[msgspec.msgpack.encode(call)])


def _leases_to_settle(request_ids: Sequence[str], prefix: str) -> Iterable[tuple[str, str, Costs]]:
    columns = ("request_id", "num_prompt_tokens", "num_output_tokens", "weighted_tokens")
    rows = UsageRecord.objects.filter(request_id__in=request_ids).values_list(*columns)
    for request_id, num_prompt, num_output, weighted in rows:
        # A request that no engine has run has no tokens, and is not counted.
        usage = ActualUsage(num_prompt, num_output) if num_prompt else NO_USAGE
        costs = usage.costs_with_weighted(round(weighted * SCALE))
        yield lease_key(prefix, request_id), request_id, costs
