"""Made-up organisations, people, keys and limits with a month of usage, and their removal.

An address of `_DOMAIN` marks a made-up user, and such a member a made-up organisation.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, time, timedelta
from functools import reduce
from math import ceil
from operator import or_
from random import Random
from typing import Any, Final

from django.db.models import Exists, F, OuterRef, Q, QuerySet, Sum

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
    RefusedRequest,
    Role,
    Rollup,
    SpanRollup,
    UsageRecord,
    UsageSlice,
    User,
)
from vinery_accounts.usage import rollups, upkeep
from vinery_accounts.usage.entries import Admission, Outcome, Settlement
from vinery_accounts.usage.rollups import LEVELS, MINUTE_S, RollupDimensions
from vinery_accounts.usage.store import store_settlements
from vinery_accounts.usage.upkeep import tallies_in

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
# The most used key first, with a quota that cuts answers. The name, the owner and the project.
_KEYS: Final = (
    ("Demo assistant, production", "demo-batch", _ASSISTANT),
    ("Demo search", "demo-batch", _SEARCH),
    ("Demo notebooks", "demo-lena", _RESEARCH),
    ("Demo evaluation", "demo-finn", _RESEARCH),
    ("Demo assistant, staging", "demo-mia", _ASSISTANT),
    ("Demo old key", "demo-adam", _SEARCH),
    ("Demo intern", "demo-finn", _RESEARCH),
)
_VISION, _EMBED = "demo-vision-7b", "demo-embed"
# The usual milliseconds for a token.
_MODELS: Final = {
    "demo-8b": 22.0,
    "demo-1b": 6.0,
    _VISION: 30.0,
    "demo-coder-30b": 35.0,
    _EMBED: 0.0,
}
_PRICES: Final = {
    model: {"uncached": 0.01 * ms, "cached": 0.001 * ms, "output": 0.03 * ms, "image": 0.02 * ms}
    for model, ms in _MODELS.items()
}
_ENDPOINTS: Final = {"demo-coder-30b": "responses", _EMBED: "embeddings"}
# The outcome, status, error code, message and field of some of a thousand requests.
_ENDINGS: Final[Mapping[tuple[Outcome, int | None, str, str, str], int]] = {
    (Outcome.OK, 200, "", "", ""): 935,
    (Outcome.CLIENT_GONE, 200, "", "", ""): 20,
    (Outcome.REJECTED, 429, "rate_limit_exceeded", "Too many requests in a minute.", ""): 22,
    (Outcome.REJECTED, 400, "invalid_value", "temperature must be at most 2.", "temperature"): 14,
    (Outcome.FAILED, 500, "engine_error", "The engine failed.", ""): 7,
    (Outcome.INTERRUPTED, None, "", "", ""): 2,
}
_BATCH: Final = 5000
# Columns that a refusal has of its request.
_SHARED: Final = {field.name for field in RefusedRequest._meta.fields} & {
    field.name for field in UsageRecord._meta.fields if not field.primary_key
}


def has_other_usage() -> bool:
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
        _make_prices()
    random = Random(seed)
    kept_since = upkeep.kept_since(UsageRecord)
    times = [each for each in _times(random, until, days, num_requests) if each >= kept_since]
    made = list(_settlements(random, keys, served, times))
    for at in range(0, len(made), _BATCH):
        store_settlements(made[at : at + _BATCH])
    with audit.writing():
        _make_limits(keys)
    lifecycle.revoke_key(keys[-2])
    return len(made)


def remove_demo() -> bool:
    """Remove everything that was made but the audit log. Returns whether there was something."""
    with audit.writing():
        ours = list(_organizations())
        users = User.objects.filter(username__startswith="demo-", email__endswith=_DOMAIN)
        if not ours and not users:
            return False
        _remove_usage([each.pk for each in ours])
        prices = [Q(model=model, **columns) for model, columns in _PRICES.items()]
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
    of_demo = {"user__username__startswith": "demo-", "user__email__endswith": _DOMAIN}
    members = {f"memberships__{name}": value for name, value in of_demo.items()}
    return Organization.objects.filter(name__in=(_ACME, _LABS), **members).distinct()


def _remove_usage(organization_ids: Collection[int]) -> None:
    """Remove all usage of these organisations, also from roll-ups shared with others."""
    rollups.take_usage_lock()
    for table in (UsageRecord, RefusedRequest):
        table._default_manager.filter(organization_id__in=organization_ids).delete()
    SpanRollup._default_manager.all().delete()
    slices = UsageSlice.objects.filter(organization_id__in=organization_ids)
    unused = UsageSlice.objects.filter(dimensions=RollupDimensions.WHAT)
    for unit_s, model in LEVELS.items():
        rows = model._default_manager.filter(slice__in=slices).order_by()
        starts = set(rows.values_list("start_s", flat=True))
        rows.delete()
        if unit_s != MINUTE_S:  # minutes are not shared
            for at in sorted(starts):
                _add_up_shared(model, at)
        used = model._default_manager.filter(slice=OuterRef("pk")).order_by()
        unused = unused.exclude(Exists(used))
    slices.delete()
    unused.delete()


def _add_up_shared(model: type[Rollup], start_s: int) -> None:
    """Write again the roll-ups without an organisation of one hour or day."""
    rows = model._default_manager.filter(start_s=start_s).order_by()
    rows.filter(slice__dimensions=RollupDimensions.WHAT).delete()
    rest = tallies_in(rows.filter(slice__dimensions=RollupDimensions.ALL))
    shared = rollups.together(
        ((at_s, each.at(RollupDimensions.WHAT)), tally) for (at_s, each), tally in rest.items()
    )
    rollups.add_tallies(model, shared, rollups.ids_of({each for _, each in shared}))


# -- People, prices and limits


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


def _make_prices() -> None:
    known = set(ModelWeight.objects.values_list("model", flat=True))
    for model in _PRICES.keys() - known:
        changes.add(ModelWeight(model=model, **_PRICES[model]))
    if not Currency.current():
        changes.add(Currency(code="EUR"))


def _make_limits(keys: Sequence[ApiKey]) -> None:
    """Add limits, and to each request that was refused or cut the limit that it met."""
    first = keys[0]
    acme, labs = (key.project.organization_id for key in (first, keys[-1]))
    cost = UsageRecord.objects.filter(organization_id=labs).aggregate(sum=Sum("cost"))["sum"]
    _limit(LimitScope.ORGANIZATION, labs, "cost", "none", ceil(cost or 0) * 100 // 96)
    of_key = UsageRecord.objects.filter(key_id=first.pk).order_by()
    tokens = Sum(F("num_prompt_tokens") + F("num_output_tokens"))
    of_days = of_key.values("created_at__date").annotate(tokens=tokens)
    most = max(of_days.values_list("tokens", flat=True), default=1)
    _refuse(
        of_key.filter(finish_reason=QUOTA_EXCEEDED),
        _limit(LimitScope.KEY, first.pk, "tokens", "day", most),
    )
    for each in (acme, labs):
        _refuse(
            UsageRecord.objects.filter(organization_id=each, http_status=429),
            _limit(LimitScope.ORGANIZATION, each, "requests", "minute", 120),
        )


def _limit(scope: str, scope_id: int, metric: str, window: str, amount: int) -> Limit:
    whose = {"scope": scope, "scope_id": scope_id, "metric": metric, "window": window}
    return changes.add(Limit(**whose, amount=max(1, amount), alert_at=[]))


def _refuse(records: QuerySet[UsageRecord], limit: Limit) -> None:
    RefusedRequest.objects.bulk_create(
        RefusedRequest(
            **{name: getattr(record, name) for name in _SHARED},
            limit_id=limit.pk,
            scope=f"{limit.scope}:{limit.scope_id}",
            metric=limit.metric,
            window=limit.window,
            amount=limit.amount,
            level=limit.amount,
            needed=1,
            wait_s=12.0 if limit.window == "minute" else None,
        )
        for record in records
    )


# -- Requests


def _times(random: Random, until: datetime, days: int, num: int) -> list[datetime]:
    """Most are in the afternoon (UTC), and half as many at weekends."""
    dates = [(until - timedelta(days=each)).date() for each in range(days)]
    shares = [0.5 if each.weekday() > 4 else 1.0 for each in dates]
    drawn = (
        datetime.combine(each, time(), until.tzinfo)
        + timedelta(seconds=int(random.triangular(0, 86_399, 54_000)))
        for each in random.choices(dates, shares, k=num)
    )
    return sorted(at if at < until else at - timedelta(days=1) for at in drawn)


def _settlements(
    random: Random, keys: Sequence[ApiKey], served: Sequence[str], times: Sequence[datetime]
) -> Iterator[Settlement]:
    """Yield requests by time. Some keys and models are used more than others."""
    token_ms = _MODELS | dict.fromkeys(served, 15.0)
    pairs = [(key, model) for key in keys for model in token_ms]
    shares = [random.expovariate(1) / (1 + keys.index(key)) for key, _ in pairs]
    for at in times:
        [(key, model)] = random.choices(pairs, shares)
        [ending] = random.choices(list(_ENDINGS), list(_ENDINGS.values()))
        names = ("outcome", "http_status", "error_code", "error_message", "error_param")
        about: dict[str, Any] = dict(zip(names, ending, strict=True))
        about["admission"] = _admission(random, key, model, at)
        if about["outcome"] is Outcome.REJECTED:
            yield Settlement(**about, total_ms=random.uniform(0.5, 3))
        else:
            is_cut = key is keys[0] and random.random() < 0.01
            yield _answer(random, about, token_ms[model], is_cut=is_cut)


def _admission(random: Random, key: ApiKey, model: str, at: datetime) -> Admission:
    return Admission(
        request_id=f"req_demo{random.getrandbits(96):024x}",
        started_at=at,
        model=model,
        asked_model=model,
        endpoint=_ENDPOINTS.get(model, "chat/completions"),
        dialect="v1",
        is_streamed=model != _EMBED and random.random() < 0.7,
        ip=f"10.0.{random.randrange(4)}.{random.randrange(1, 255)}",
        end_user=f"demo-customer-{random.randrange(1, 40)}" if random.random() < 0.4 else "",
        user_id=key.owner_id,
        username=key.owner.username,
        key_id=key.pk,
        key_name=key.name,
        project_id=key.project_id,
        project_name=key.project.name,
        organization_id=key.project.organization_id,
        organization_name=key.project.organization.name,
    )


def _answer(
    random: Random, about: Mapping[str, Any], token_ms: float, *, is_cut: bool
) -> Settlement:
    is_ok = about["outcome"] is Outcome.OK
    prompt, output = (int(random.lognormvariate(each, 1)) + 1 for each in (6, 5))
    output = 0 if not token_ms else output if is_ok else output // 2
    first_ms, queue_ms = random.lognormvariate(5, 0.6), random.lognormvariate(1, 1.5)
    inter_ms = token_ms * random.lognormvariate(0, 0.4)
    reason = random.choices(("stop", "length", "tool_calls"), (85, 9, 6))[0] if token_ms else ""
    num_media = random.randrange(1, 4) if about["admission"].model == _VISION else 0
    return Settlement(
        **about,
        num_prompt_tokens=prompt + 256 * num_media,
        num_image_tokens=256 * num_media,
        num_cached_tokens=prompt // 2 if random.random() < 0.5 else 0,
        num_output_tokens=output,
        queue_ms=queue_ms,
        first_token_ms=first_ms,
        inter_token_ms=inter_ms if output > 1 else None,
        total_ms=first_ms + queue_ms + inter_ms * output,
        num_media=num_media,
        finish_reason=(QUOTA_EXCEEDED if is_cut and output else reason) if is_ok else "",
    )
