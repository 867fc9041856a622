"""Made-up organisations, people, keys and limits with a month of usage, and their removal.

An address of `_DOMAIN` marks a made-up user, and such a member a made-up organisation.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from functools import reduce
from math import ceil
from operator import or_
from typing import Any, Final

from django.db.models import Q, QuerySet
from msgspec.structs import replace

from vinery_accounts.access import audit, changes
from vinery_accounts.base.errors import QUOTA_EXCEEDED
from vinery_accounts.base.limit_table import Metric
from vinery_accounts.keys import lifecycle
from vinery_accounts.models import (
    ApiKey,
    Currency,
    DayRollup,
    Limit,
    LimitScope,
    ModelWeight,
    Organization,
    Project,
    Role,
    UsageRecord,
    User,
)
from vinery_accounts.usage import demo, retention
from vinery_accounts.usage.entries import (
    EQUAL_WEIGHTS,
    BoundLimit,
    Settlement,
    Weights,
    weights_by_model,
)
from vinery_accounts.usage.rollups import RollupDimensions
from vinery_accounts.usage.store import store_settlements

_DOMAIN: Final = "@demo.invalid"
_ACME, _LABS = "Demo Acme", "Demo Labs"
_ASSISTANT, _SEARCH, _RESEARCH = "Demo assistant", "Demo search", "Demo research"
_PROJECTS: Final = {_ASSISTANT: _ACME, _SEARCH: _ACME, _RESEARCH: _LABS}
_PEOPLE: Final = (
    ("demo-olivia", _ACME, Role.OWNER),
    ("demo-adam", _ACME, Role.ADMIN),
    ("demo-mia", _ACME, Role.MEMBER),
    ("demo-batch", _ACME, Role.MEMBER),
    ("demo-lena", _LABS, Role.OWNER),
    ("demo-ravi", _LABS, Role.ADMIN),
    ("demo-finn", _LABS, Role.MEMBER),
)
# The most used key first. The name of each key, its owner and project.
_KEYS: Final = (
    ("Demo assistant, production", "demo-batch", _ASSISTANT),
    ("Demo search", "demo-batch", _SEARCH),
    ("Demo notebooks", "demo-lena", _RESEARCH),
    ("Demo evaluation", "demo-finn", _RESEARCH),
    ("Demo assistant, staging", "demo-mia", _ASSISTANT),
    ("Demo old key", "demo-adam", _SEARCH),
    ("Demo intern", "demo-finn", _RESEARCH),
)
_BATCH: Final = 5000

Limits = Mapping[tuple[str, int | None], Limit]


def has_other_usage() -> bool:
    """Whether there is usage that `make_demo` has not made."""
    days = DayRollup._default_manager.filter(slice__dimensions=RollupDimensions.ALL)
    ours = list(_organizations().values_list("pk", flat=True))
    return days.exclude(slice__organization_id__in=ours).exists()


def make_demo(
    served: Sequence[str], *, until: datetime, num_requests: int, days: int, seed: int
) -> int:
    """Replace what an earlier call has made. `served` are names of models. Returns the number of
    requests. Raises `ValidationError` if others have one of the names."""
    remove_demo()
    with audit.writing():
        keys = _make_people()
        weights = _make_prices()
    owners = [_owners_of(key) for key in keys]
    plan = demo.Plan(owners, served, num_requests, until, days, seed)
    kept_since = retention.kept_since(UsageRecord)
    found = [each for each in demo.settlements(plan) if each.admission.started_at >= kept_since]
    made = [_with_cost(each, weights.get(each.admission.model, EQUAL_WEIGHTS)) for each in found]
    with audit.writing():
        limits = _make_limits(keys, made)
    for at in range(0, len(made), _BATCH):
        store_settlements([_with_limit(each, limits) for each in made[at : at + _BATCH]])
    lifecycle.revoke_key(keys[-2])
    return len(made)


def remove_demo() -> bool:
    """Remove everything that was made but the audit log. Returns whether there was something."""
    with audit.writing():
        ours = list(_organizations())
        users = User.objects.filter(username__startswith=demo.PREFIX, email__endswith=_DOMAIN)
        if not ours and not users:
            return False
        demo.remove_usage([each.pk for each in ours])
        prices = [Q(model=model, **columns) for model, columns in demo.PRICES.items()]
        for rows in (
            ModelWeight.objects.filter(reduce(or_, prices)),
            ApiKey.objects.filter(project__organization__in=ours),
            Project.objects.filter(organization__in=ours),
            ours,
            users,
        ):
            for row in rows:
                changes.remove(row)
        if ours and not (ModelWeight.objects.exists() or Limit.objects.filter(metric=Metric.COST)):
            for currency in Currency.objects.filter(created_at__gte=ours[0].created_at):
                changes.remove(currency)
    return True


def _organizations() -> QuerySet[Organization]:
    of_demo = {"user__username__startswith": demo.PREFIX, "user__email__endswith": _DOMAIN}
    members = {f"memberships__{name}": value for name, value in of_demo.items()}
    return Organization.objects.filter(name__in=(_ACME, _LABS), **members).distinct()


def _make_people() -> list[ApiKey]:
    organizations = {name: changes.add(Organization(name=name)) for name in (_ACME, _LABS)}
    projects = {
        name: changes.add(Project(organization=organizations[whose], name=name))
        for name, whose in _PROJECTS.items()
    }
    users = {
        name: changes.add_user(
            name,
            email=f"{name}{_DOMAIN}",
            is_email_confirmed=False,
            is_service=name == "demo-batch",
            scope=organizations[whose],
            role=role,
        )
        for name, whose, role in _PEOPLE
    }
    # Nobody learns the secrets.
    return [
        lifecycle.create_key(owner=users[owner], project=projects[project], name=name).key
        for name, owner, project in _KEYS
    ]


def _make_prices() -> Mapping[str, Weights]:
    """Set the prices that made-up models lack and, if there is none, a currency."""
    known = set(ModelWeight.objects.values_list("model", flat=True))
    for model in demo.PRICES.keys() - known:
        changes.add(ModelWeight(model=model, **demo.PRICES[model]))
    if not Currency.current():
        changes.add(Currency(code="EUR"))
    return weights_by_model(ModelWeight.objects.all(), are_prices=True)


def _with_cost(made: Settlement, weights: Weights) -> Settlement:
    weighted, cost = weights.weigh_milli(made) / 1000, weights.cost_milli(made) / 1000
    return replace(made, weighted_tokens=weighted, cost=cost)


def _owners_of(key: ApiKey) -> Mapping[str, Any]:
    project = key.project
    return {
        "user_id": key.owner_id,
        "username": key.owner.username,
        "key_id": key.pk,
        "key_name": key.name,
        "project_id": project.pk,
        "project_name": project.name,
        "organization_id": project.organization_id,
        "organization_name": project.organization.name,
    }


def _make_limits(keys: Sequence[ApiKey], made: Sequence[Settlement]) -> Limits:
    """Return the limits that requests met, by what the requests say and their organisation."""
    first, last = keys[0], keys[-1]
    acme, labs = (key.project.organization_id for key in (first, last))
    by_day: Counter[date] = Counter()
    for each in made:
        if each.admission.key_id == first.pk:
            by_day[each.admission.started_at.date()] += each.num_tokens
    of_day = max(by_day.values(), default=1)
    of_last = ceil(sum(each.cost for each in made if each.admission.key_id == last.pk))
    of_all = ceil(sum(each.cost for each in made if each.admission.organization_id == labs))
    rows = (
        ("", labs, LimitScope.ORGANIZATION, labs, Metric.COST, "none", of_all * 100 // 96),
        ("insufficient_quota", labs, LimitScope.KEY, last.pk, Metric.COST, "none", of_last),
        (QUOTA_EXCEEDED, acme, LimitScope.KEY, first.pk, "tokens", "day", of_day),
        *(
            ("rate_limit_exceeded", each, LimitScope.ORGANIZATION, each, "requests", "minute", 120)
            for each in (acme, labs)
        ),
    )
    return {
        (met, organization): changes.add(
            Limit(
                scope=scope,
                scope_id=scope_id,
                metric=metric,
                window=window,
                amount=max(1, amount),
                alert_at=[],  # no mails
            )
        )
        for met, organization, scope, scope_id, metric, window, amount in rows
    }


def _with_limit(made: Settlement, limits: Limits) -> Settlement:
    met = made.error_code or made.finish_reason or "-"
    limit = limits.get((met, made.admission.organization_id))
    if limit is None:
        return made
    bound = BoundLimit(
        limit_id=limit.pk,
        scope=f"{limit.scope}:{limit.scope_id}",
        metric=limit.metric,
        window=limit.window,
        amount=limit.amount,
        level=limit.amount,
        needed=1,
        wait_s=12.0 if limit.window == "minute" else None,
    )
    return replace(made, bound_limits=(bound,))
