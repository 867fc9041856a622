"""Which limits bind whom, answered from memory.

`RuleBook` holds all rows of limits and of token weights. The event loop asks it for every
request; another thread calls `read()` about once a second, so that a change is seen
within two. A limit that is set anew goes on with what was used under the old amount.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from django.db.models import Count, Max, Q, Sum

from accounts.keys.table import Caller
from accounts.limits.memo import ByIdentity
from accounts.limits.rotation_chain import heirs_of
from accounts.limits.rules import EQUAL_WEIGHTS, MAX_AMOUNT, Metric, Rule, Weekday, Weights, Window
from accounts.limits.weights import read_weights
from accounts.models import Limit, LimitScope, ModelWeight

log = logging.getLogger(__name__)

PLATFORM = "platform"
_NONE: tuple[Rule, ...] = ()
# Of pairs of a caller and a model, whose rules are remembered.
_MAX_KNOWN = 10_000


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All rows at one moment."""

    rules: Mapping[str, tuple[Rule, ...]] = field(default_factory=dict)  # by scope
    weights: Mapping[str, Weights] = field(default_factory=dict)  # by model
    fingerprint: object = None
    # By the scope of a key that was rotated, those of the keys that took its place.
    heirs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    by_key: Mapping[str, Rule] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        by_key = {rule.key: rule for rule in self.all_rules}
        object.__setattr__(self, "by_key", by_key)

    @property
    def all_rules(self) -> Iterable[Rule]:
        """Of all scopes."""
        return (rule for rules in self.rules.values() for rule in rules)


class RuleBook:
    """One thread may read it anew while another asks."""

    def __init__(self) -> None:
        self._snapshot = Snapshot()
        self._known: dict[object, tuple[Rule, ...]] = {}
        self._as_now = ByIdentity(self._find_again)

    @property
    def rules(self) -> Iterable[Rule]:
        """All of them."""
        return self._snapshot.all_rules

    @property
    def is_empty(self) -> bool:
        """Whether nothing is limited."""
        return not self._snapshot.rules

    def rules_for(self, caller: Caller, model: str) -> tuple[Rule, ...]:
        """All that bind a request of this caller to this model, the widest first."""
        if not self._snapshot.rules:
            return _NONE
        # Of a caller, what `scopes_of` looks at.
        place = (
            caller.organization_id,
            caller.project_id,
            caller.user_id,
            caller.key_id,
            model,
        )
        found = self._known.get(place)
        if found is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            found = self._known[place] = tuple(
                rule
                for scope in (*scopes_of(caller), f"model:{model}")
                for rule in self.rules_in(scope)
            )
        return found

    def rules_in(self, scope: str) -> tuple[Rule, ...]:
        """Those of one scope. A key that was rotated has those of all that took its place, too."""
        snapshot = self._snapshot
        scopes = (scope, *snapshot.heirs.get(scope, ()))
        return tuple(rule for each in scopes for rule in snapshot.rules.get(each, _NONE))

    def as_now(self, rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
        """These rules, which bound a request when it came, by what they are now: those very ones
        if they are the same. One that is gone binds nobody, and keeps its place."""
        return self._as_now(rules)

    def left_of(self, rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
        """The same for a request that has nothing of them yet: those that are gone are left out."""
        now = self._as_now(rules)
        if now is rules:
            return rules
        return tuple(rule for rule in now if rule.key in self._snapshot.by_key)

    def weights_of(self, model: str) -> Weights:
        """What this model's tokens count for in budgets."""
        return self._snapshot.weights.get(model, EQUAL_WEIGHTS)

    def read(self) -> Snapshot:
        """What the database says: two small queries when nothing has changed. Lets database
        errors through. It holds from `follow` on, so that there is time to learn what was
        used of new quotas."""
        fingerprint = _fingerprint()
        if fingerprint == self._snapshot.fingerprint:
            return self._snapshot
        rules = _all_rules()
        return Snapshot(rules, read_weights(), fingerprint, _heirs(rules))

    def follow(self, snapshot: Snapshot) -> None:
        """From now on these rules bind."""
        if snapshot is not self._snapshot:
            self._known.clear()
            self._as_now = ByIdentity(self._find_again)
        self._snapshot = snapshot

    def _find_again(self, rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
        by_key = self._snapshot.by_key
        now = tuple(by_key.get(rule.key) or replace(rule, amount=MAX_AMOUNT) for rule in rules)
        return rules if now == rules else now


def scopes_of(caller: Caller) -> tuple[str, ...]:
    """Everybody for whom a caller's requests are counted. What belongs to nobody has no
    scope."""
    owned = (
        (LimitScope.ORGANIZATION.value, caller.organization_id),
        (LimitScope.PROJECT.value, caller.project_id),
        (LimitScope.USER.value, caller.user_id),
        (LimitScope.KEY.value, caller.key_id),
    )
    ids = tuple(f"{kind}:{id_}" for kind, id_ in owned if id_ is not None)
    return (PLATFORM, *ids)


def rule_of(limit: Limit) -> Rule:
    """A row as the limiters know it. Raises ValueError for a row that means nothing."""
    return Rule(
        id=limit.pk,
        scope=_scope_of(limit),
        metric=Metric(limit.metric),
        window=Window(limit.window),
        amount=min(limit.amount, MAX_AMOUNT),
        time_zone=limit.time_zone,
        is_shadow=limit.is_shadow,
        week_start=Weekday(limit.week_start),
    )


def _scope_of(limit: Limit) -> str:
    match limit.scope:
        case LimitScope.PLATFORM:
            return PLATFORM
        case LimitScope.MODEL:
            return f"model:{limit.model}"
        case kind:
            return f"{kind}:{limit.scope_id}"


def _fingerprint() -> object:
    """The sums are for a row that becomes visible late, behind one with a later stamp."""
    limits = Limit.objects.aggregate(
        Count("id"),
        Max("id"),
        Max("updated_at"),
        Sum("amount"),
        num_shadow=Count("id", filter=Q(is_shadow=True)),
    )
    weights = ModelWeight.objects.aggregate(
        Count("id"),
        Max("id"),
        Max("updated_at"),
        *(Sum(name) for name in ("uncached", "cached", "output", "image")),
    )
    return limits, weights


def _heirs(scopes: Iterable[str]) -> dict[str, tuple[str, ...]]:
    prefix = f"{LimitScope.KEY.value}:"
    limited = {int(scope.removeprefix(prefix)) for scope in scopes if scope.startswith(prefix)}
    return {
        f"{prefix}{old}": tuple(f"{prefix}{new}" for new in heirs)
        for old, heirs in heirs_of(limited).items()
    }


def _all_rules() -> dict[str, tuple[Rule, ...]]:
    rules: defaultdict[str, list[Rule]] = defaultdict(list)
    for limit in Limit.objects.order_by("id"):
        try:
            rule = rule_of(limit)
        except (ValueError, KeyError) as error:
            # Written past the form. It must not keep the others from being followed.
            log.error("limit %s is left out: %s", limit.pk, error)
            continue
        rules[rule.scope].append(rule)
    return {scope: tuple(of_scope) for scope, of_scope in rules.items()}
