"""The limits of a request, from memory.

The event loop asks the rule book for every request. Another thread calls `read` about once a
second, so that a change holds within two seconds.

Rotated keys: a rotation moves the limits of the old key to the new one. Until its grace period
ends, the old key works and counts with the new key. A later limit on the old key binds the old key
besides.
"""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from django.db import connection

from vinery_accounts.limits.rules import END_USER, PLATFORM, Metric, Rule, Weekday, Window
from vinery_accounts.models.keys import ApiKey
from vinery_accounts.models.limits import Currency, Limit, LimitScope, ModelWeight
from vinery_accounts.usage.entries import EQUAL_WEIGHTS, Owners, Weights, weights_by_model

logger = logging.getLogger(__name__)

_NO_RULES: Final[tuple[Rule, ...]] = ()
# Pairs of a caller and a model.
_MAX_CACHED: Final = 10_000
# A row that differs after each change: sums find rows that are visible late. Not by the ORM: to
# build these queries would take twenty times as long as to run them.
_NEWEST: Final = "COUNT(id), MAX(id), MAX(updated_at)"
_FINGERPRINT_SQL: Final = f"""
SELECT * FROM
    (SELECT {_NEWEST}, SUM(amount), COUNT(CASE WHEN is_shadow THEN 1 END)
        FROM {Limit._meta.db_table}) AS limits,
    (SELECT {_NEWEST}, SUM(uncached), SUM(cached), SUM(output), SUM(image)
        FROM {ModelWeight._meta.db_table}) AS weights,
    (SELECT {_NEWEST} FROM {Currency._meta.db_table}) AS currencies
"""


@dataclass(frozen=True, slots=True)
class Snapshot:
    rules: Mapping[str, tuple[Rule, ...]] = field(default_factory=dict)  # by scope
    weights: Mapping[str, Weights] = field(default_factory=dict)  # by model
    fingerprint: Any = None
    # By the scope of a rotated key, the scopes of the keys after it.
    successors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    by_key: Mapping[str, Rule] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        by_key = {rule.key: rule for rule in self.all_rules}
        object.__setattr__(self, "by_key", by_key)

    @property
    def all_rules(self) -> Iterable[Rule]:
        return (rule for rules in self.rules.values() for rule in rules)


class RuleBook:
    """The rules in force. One thread may read new rules while another asks."""

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self.snapshot = snapshot or Snapshot()
        self._cached: dict[object, tuple[Rule, ...]] = {}
        self._find_again = lru_cache(maxsize=_MAX_CACHED)(self._current_of)

    @property
    def rules(self) -> Iterable[Rule]:
        return self.snapshot.all_rules

    def rules_for(self, caller: Owners, model: str, end_user: str = "") -> tuple[Rule, ...]:
        """Return the rules that bind a request of this caller to this model, the widest first. The
        end user is named as in usage records; empty: the request has none."""
        if not self.snapshot.rules:
            return _NO_RULES
        of_each = self.snapshot.rules.get(f"{END_USER}:{caller.project_id}", _NO_RULES)
        named = end_user if of_each else ""
        # The fields of the caller that `scopes_of` reads.
        owners = (caller.organization_id, caller.project_id, caller.user_id, caller.key_id)
        source = (*owners, model, named)
        found = self._cached.get(source)
        if found is None:
            if len(self._cached) >= _MAX_CACHED:
                self._cached.clear()
            scopes = (*scopes_of(caller), f"model:{model}")
            found = self._cached[source] = (
                *(rule for scope in scopes for rule in self.rules_in(scope)),
                *(rule.of_end_user(named) for rule in of_each if named),
            )
        return found

    def request_rates_for(self, caller: Owners, model: str) -> tuple[Rule, ...]:
        """Return the rules for a request that no engine runs: the rate limits on requests. Quotas
        are counted from usage records, which such a request does not have."""
        rules = self.rules_for(caller, model)
        return tuple(rule for rule in rules if rule.metric is Metric.REQUESTS and not rule.is_quota)

    def rules_in(self, scope: str) -> tuple[Rule, ...]:
        """Return the rules of a scope. A rotated key also has the rules of all its successors."""
        snapshot = self.snapshot
        scopes = (scope, *snapshot.successors.get(scope, ()))
        return tuple(rule for each in scopes for rule in snapshot.rules.get(each, _NO_RULES))

    def current(self, rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
        """Return the rules of a running request with their present amounts. A rule that is gone
        keeps its index and refuses nothing."""
        return self._find_again(rules)

    def remaining(self, rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
        """Return the rules of a request without reservations, with present amounts and without
        rules that are gone."""
        current = self._find_again(rules)
        if current == rules:
            return rules
        return tuple(rule for rule in current if rule.limit_key in self.snapshot.by_key)

    def weights_of(self, model: str) -> Weights:
        return self.snapshot.weights.get(model, EQUAL_WEIGHTS)

    def read(self) -> Snapshot:
        """Read the database: one small query when nothing has changed. The snapshot holds from
        `follow` on, so that the limiter can receive the baselines of new quotas first. Raises
        `django.db.Error`."""
        with connection.cursor() as cursor:
            cursor.execute(_FINGERPRINT_SQL)
            fingerprint = cursor.fetchone()
        if fingerprint == self.snapshot.fingerprint:
            return self.snapshot
        rules: defaultdict[str, tuple[Rule, ...]] = defaultdict(tuple)
        for rule in valid_rules(Limit.objects.order_by("id")).values():
            rules[rule.scope] += (rule,)
        are_prices = bool(Currency.current())
        weights = weights_by_model(ModelWeight.objects.all(), are_prices=are_prices)
        return Snapshot(dict(rules), weights, fingerprint, successors_in(rules))

    def follow(self, snapshot: Snapshot) -> None:
        if snapshot is not self.snapshot:
            self._cached.clear()
            self._find_again.cache_clear()
        self.snapshot = snapshot

    def _current_of(self, rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
        by_key = self.snapshot.by_key
        return tuple(
            replace(found, end_user=rule.end_user) if rule.end_user else found
            for rule in rules
            for found in [
                by_key.get(rule.limit_key) or replace(rule, amount=rule.metric.max_amount)
            ]
        )


def scopes_of(caller: Owners) -> tuple[str, ...]:
    owned = (
        (LimitScope.ORGANIZATION.value, caller.organization_id),
        (LimitScope.PROJECT.value, caller.project_id),
        (LimitScope.USER.value, caller.user_id),
        (LimitScope.KEY.value, caller.key_id),
    )
    ids = tuple(f"{kind}:{id_}" for kind, id_ in owned if id_ is not None)
    return (PLATFORM, *ids)


def rule_of(limit: Limit, currency: str = "") -> Rule:
    """Return the rule of a row. Raises ValueError and KeyError for a row without a meaning."""
    return Rule(
        id=limit.pk,
        scope=scope_of(limit),
        metric=Metric(limit.metric),
        window=Window(limit.window),
        amount=min(limit.amount, Metric(limit.metric).max_amount),
        time_zone=limit.time_zone,
        is_shadow=limit.is_shadow,
        week_start=Weekday(limit.week_start),
        currency=currency if limit.metric == Metric.COST else "",
    )


def valid_rules(limits: Iterable[Limit]) -> dict[Limit, Rule]:
    """Return the rules of rows. A row without a meaning, which no form has checked, must not keep
    the others out."""
    rows, rules = list(limits), {}
    currency = Currency.current() if any(row.metric == Metric.COST for row in rows) else ""
    for limit in rows:
        try:
            rules[limit] = rule_of(limit, currency)
        except (ValueError, KeyError) as error:
            logger.error("ignoring limit %s: %s", limit.pk, error)
    return rules


def successors_of(key_ids: Collection[int]) -> dict[int, tuple[int, ...]]:
    """Return for each replaced key its direct and later successors among these keys, the next key
    first. One query. Raises `django.db.Error`."""
    found: dict[int, tuple[int, ...]] = {}
    replaced = ApiKey.objects.exclude(replaced_by=None) if key_ids else ApiKey.objects.none()
    # A key is newer than those that it replaces, so the keys after it are known already.
    for old, new in replaced.order_by("-pk").values_list("pk", "replaced_by_id"):
        after = found.get(new, ())
        found[old] = (new, *after) if new in key_ids else after
    return {old: after for old, after in found.items() if after}


def scope_of(limit: Limit) -> str:
    match limit.scope:
        case LimitScope.PLATFORM:
            return PLATFORM
        case LimitScope.MODEL:
            return f"model:{limit.model}"
        case kind:
            return f"{kind}:{limit.scope_id}"


def successors_in(scopes: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """By the scope of a rotated key, those of these scopes that are of keys after it."""
    prefix = f"{LimitScope.KEY.value}:"
    limited = {int(scope.removeprefix(prefix)) for scope in scopes if scope.startswith(prefix)}
    return {
        f"{prefix}{old}": tuple(f"{prefix}{new}" for new in after)
        for old, after in successors_of(limited).items()
    }
