"""Limits: how much is used and left, and the pages that set, change and remove them."""

import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone

from vinery_accounts.access.access import Access, Action
from vinery_accounts.alerts.quotas import Quota, read_quotas
from vinery_accounts.base.limit_table import METRIC_CHOICES
from vinery_accounts.base.money import MILLION, limited, quantity, whole
from vinery_accounts.console.page import FormPage, Page, at
from vinery_accounts.console.rows import ChangeRow, ConfirmPage, Question
from vinery_accounts.console.words import reset, runs_out, store_outage
from vinery_accounts.limits.rules import Metric, Rule, Weekday, Window, in_words
from vinery_accounts.limits.service import (
    Level,
    current_levels,
    current_state,
    scope_of,
    valid_rules,
)
from vinery_accounts.models import OWNERS, Currency, Limit, LimitScope, User
from vinery_accounts.resources.base import require
from vinery_accounts.resources.fields import id_of
from vinery_accounts.resources.forms import ResourceForm
from vinery_accounts.resources.limits import LIMITS, owners_of

_MAX_CHOICES: Final = 100
_KIND: Final = ("model", "metric", "window")
_VALUES: Final = ("amount", "time_zone", "week_start", "alert_at", "is_shadow")
_MAX_QUOTAS: Final = 5
# At most so many of those that run out; the others are the fullest of the rest.
_MAX_ENDING: Final = 3
_NEVER: Final = datetime.max.replace(tzinfo=UTC)


@at("limits/", "limits")
class Limits(Page):
    template_name = "console/limits.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        rows, is_known = limit_rows(self.access)
        return super().get_context_data(**kwargs) | {
            "rows": rows,
            "is_known": is_known,
            # Read after the levels: reading those notices an outage.
            "outage": store_outage(current_state(), time.time()),
            "may_set": may_set_limits(self.access),
        }


def limit_rows(
    access: Access, found: Iterable[Limit] | None = None
) -> tuple[list[dict[str, Any]], bool]:
    """Return what pages show of the limits, by default of all that the caller sees, and whether
    the current use is known."""
    limits = list(access.rows(Limit) if found is None else found)
    may_change = changeable(access, limits)
    rules = list(valid_rules(limits).values())
    owners = owners_of(access, [rule.scope for rule in rules])
    levels = current_levels(rules) if rules else ()
    quotas = _quotas(access) if rules else {}
    by_rule = {level.rule.id: level for level in levels or ()}
    rows = []
    for rule in rules:
        level = by_rule.get(rule.id)
        amount = rule.amount if level is None else level.rule.amount
        row = {
            "id": rule.id,
            "owner": owners[rule.scope],
            "what": in_words(rule.metric, rule.window),
            "amount": amount,
            **_marks(amount),
            # Where `amount` is only the share of one process.
            "whole": rule.amount if amount != rule.amount else None,
            **(use := _use(rule, level, quotas.get(rule.id))),
            "texts": _texts(rule, {"amount": amount, "whole": rule.amount, **use}),
            "reset": reset(rule, level),
            "runs_out": _end(quotas.get(rule.id)),
            "is_shadow": rule.is_shadow,
            "unread": "each their own" if rule.scope_kind == LimitScope.END_USER else "unknown",
            "may_change": rule.id in may_change,
        }
        rows.append(row)
    return rows, levels is not None


def _texts(rule: Rule, numbers: dict[str, float | None]) -> dict[str, str]:
    known = {name: each for name, each in numbers.items() if each is not None}
    return {name: quantity(rule.metric, each, rule.currency) for name, each in known.items()}


def _marks(amount: int) -> dict[str, float]:
    return {"low": amount * 0.8, "high": amount - 0.1}


def _quotas(access: Access) -> dict[int, Quota]:
    return {quota.limit.pk: quota for quota in read_quotas(access.quotas_seen(), timezone.now())}


def _use(rule: Rule, level: Level | None, quota: Quota | None) -> dict[str, float | None]:
    """Return how much is used and left; None if unknown, or different by end user. A new limit is
    counted from usage records, which the limiter has not read yet. Monitored limits and shares of a
    process are the limiter's alone."""
    if level is None or rule.scope_kind == LimitScope.END_USER:
        return {"used": None, "left": None}
    is_whole = quota is not None and not rule.is_shadow and level.rule.amount == rule.amount
    recorded = quota.num_used if quota is not None and is_whole else 0
    used = max(level.num_used, recorded)
    return {"used": used, "left": max(0, min(level.num_remaining, rule.amount - recorded))}


def _end(quota: Quota | None) -> str:
    if quota is None or quota.runs_out_at is None or not quota.num_left:
        return ""
    return runs_out((quota.runs_out_at - timezone.now()).total_seconds())


# -- Quotas on the overview


def quota_rows(access: Access, now: datetime) -> list[dict[str, Any]]:
    quotas = closest(read_quotas(access.quotas_seen(), now))
    scopes = [scope_of(quota.limit) for quota in quotas]
    owners = owners_of(access, scopes)
    return [
        {
            "owner": owners[scope],
            "what": in_words(quota.limit.metric, quota.limit.window),
            "quota": quota,
            **_marks(quota.limit.amount),
        }
        for scope, quota in zip(scopes, quotas, strict=True)
    ]


def exhausted_quotas(access: Access, user: User) -> list[dict[str, Any]]:
    """Return the used-up quotas of the user alone: until they reset, the user's requests are
    refused with any key."""
    own = access.quotas_seen().filter(
        scope=LimitScope.USER.value, scope_id=user.pk, is_shadow=False
    )
    return [
        {"limited": _limited(quota.limit), "quota": quota}
        for quota in read_quotas(own, timezone.now())
        if not quota.num_left
    ]


def _limited(limit: Limit) -> str:
    code = Currency.current() if limit.metric == Metric.COST else ""
    return limited(limit.metric, limit.window, limit.amount, code)


def closest(quotas: list[Quota]) -> list[Quota]:
    used = sorted(
        (quota for quota in quotas if quota.num_used),
        key=lambda quota: (quota.runs_out_at or _NEVER, -quota.percent),
    )
    ending = [quota for quota in used if quota.runs_out_at is not None][:_MAX_ENDING]
    others = (quota for quota in used if quota not in ending)
    fullest = sorted(others, key=lambda quota: -quota.percent)
    return [*ending, *fullest[: _MAX_QUOTAS - len(ending)]]


# -- Setting, changing and removing a limit


class LimitForm(ResourceForm):
    """A limit of the cost has its amount in the currency, others whole numbers."""

    currency = ""
    metric = ""
    """That of a limit that exists."""

    def take_money(self, currency: str) -> None:
        self.currency = currency
        others = "" if self.metric else " For other limits a whole number."
        self.fields["amount"] = forms.DecimalField(
            min_value=Decimal(1) / MILLION,
            help_text=f"Of the cost in {currency}, such as 12.50.{others}",
        )
        self.order_fields(self.field_order or _VALUES)

    def clean(self) -> dict[str, Any]:
        values = self.cleaned_data
        amount = values.get("amount")
        if self.currency and amount is not None:
            is_money = (self.metric or values.get("metric")) == Metric.COST
            try:
                values["amount"] = whole(amount, MILLION if is_money else 1)
            except ValueError as error:
                raise ValidationError({"amount": str(error)}) from None
        return values


class NewLimitForm(LimitForm):
    field_order = ("of", *_KIND, *_VALUES)
    of = forms.CharField(label="Applies to", widget=forms.Select)

    def __init__(self, access: Access, data: Any = None, of: str = "") -> None:
        kind = _KIND if access.is_superuser else _KIND[1:]
        initial = {"of": of, "time_zone": "UTC", "week_start": Weekday.MONDAY}
        super().__init__(LIMITS, access, data, (*kind, *_VALUES), initial=initial)
        select = self.fields["of"].widget
        assert isinstance(select, forms.Select)
        select.choices = list(_choices(access, str((data or {}).get("of", "")) or of))
        metric, window = self.fields["metric"], self.fields["window"]
        metric.label = "Limit"
        assert isinstance(metric, forms.ChoiceField)
        if code := Currency.current():
            self.take_money(code)
            names = {Metric.COST.value: f"cost in {code}"}
            metric.choices = [(each.value, names.get(each, each.label)) for each in Metric]
        else:
            metric.choices = [(k, v) for k, v in METRIC_CHOICES if k != Metric.COST]
        window.help_text = "Choose no window for concurrency and lifetime budgets."

    def clean_of(self) -> tuple[str, int]:
        scope, _, owner = self.cleaned_data["of"].partition(":")
        owner_id = id_of(owner)
        if scope not in LimitScope.values or (scope in OWNERS) != (owner_id is not None):
            raise ValidationError("Choose an entry of the list.")
        return scope, owner_id or 0

    @property
    def columns(self) -> dict[str, Any]:
        scope, scope_id = self.cleaned_data["of"]
        return {**super().columns, "scope": scope, "scope_id": scope_id}


def _choices(access: Access, chosen: str) -> Iterator[tuple[str, Any]]:
    if access.is_superuser:
        yield LimitScope.PLATFORM.value, "The whole platform"
        yield LimitScope.MODEL.value, "A model"
    for kind, table in OWNERS.items():
        rows = access.rows_to_limit(table)
        found = {row.pk: row for row in rows.order_by("-pk")[:_MAX_CHOICES]}
        scope, _, owner = chosen.partition(":")
        if scope == kind and (owner_id := id_of(owner)):
            found |= {row.pk: row for row in rows.filter(pk=owner_id)}
        if found:
            named = sorted((str(row), pk) for pk, row in found.items())
            group = "Each end user of" if kind == LimitScope.END_USER else f"{kind.capitalize()}s"
            yield group, [(f"{kind}:{pk}", name) for name, pk in named]


def may_set_limits(access: Access) -> bool:
    return access.is_superuser or any(
        access.rows_to_limit(table).exists() for table in OWNERS.values()
    )


def changeable(access: Access, limits: list[Limit]) -> set[int]:
    if access.is_superuser:
        return {limit.pk for limit in limits}
    owners: set[tuple[str, int]] = set()
    for kind, table in OWNERS.items():
        ids = {limit.scope_id for limit in limits if limit.scope == kind}
        rows = access.rows_to_limit(table).filter(pk__in=ids).order_by()
        owners |= {(kind, pk) for pk in rows.values_list("pk", flat=True)}
    return {limit.pk for limit in limits if (limit.scope, limit.scope_id) in owners}


_NOTE: Final = (
    "A request must fit all limits that apply to it. Past usage counts. Takes effect within two "
    "seconds."
)


@at("limits/new/", "limit-new")
class SetLimit(FormPage):
    """`of=key:12` chooses the owner."""

    heading, button, note = "Set a limit", "Set the limit", _NOTE
    field_of_column = {"scope": "of", "scope_id": "of"}

    def form_of(self, data: QueryDict | None) -> NewLimitForm:
        if not may_set_limits(self.access):
            raise PermissionDenied
        return NewLimitForm(self.access, data, of=self.request.GET.get("of", ""))

    def save(self, form: NewLimitForm) -> HttpResponse:
        LIMITS.create(self.access, form.columns)
        messages.success(self.request, "The limit is set.")
        return redirect("console:limits")


def _described(access: Access, limit: Limit, what: str = "") -> str:
    scope = scope_of(limit)
    owner = owners_of(access, [scope])[scope]
    return f"{what or in_words(limit.metric, limit.window)}, for {owner}."


@at("limits/<int:row_id>/", "limit")
class ChangeLimit(ChangeRow):
    resource = LIMITS
    heading, note = "Change a limit", _NOTE
    names = _VALUES
    done = "The limit is changed."

    def texts(self) -> dict[str, Any]:
        text = _described(self.access, self.row)
        remove = reverse("console:limit-remove", args=[self.row.pk])
        return {"intro": f"{text[:1].upper()}{text[1:]}", "remove": remove}

    def form_of(self, data: QueryDict | None) -> ResourceForm:
        require(self.access, Action.MANAGE, self.row)
        form = LimitForm(self.resource, self.access, data, self.names, self.row)
        if self.row.metric == Metric.COST:
            form.metric = self.row.metric
            form.take_money(Currency.current())
            form.initial["amount"] = Decimal(self.row.amount) / MILLION
        if self.row.window != Window.WEEK:
            del form.fields["week_start"]
        return form

    def row_address(self, row: Limit) -> str:
        return reverse("console:limits")


@at("limits/<int:row_id>/", "limit", "remove")
class RemoveLimit(ConfirmPage):
    resource = LIMITS
    questions = {
        "remove": Question(
            "Remove this limit?",
            "{about} Other limits stay. Takes effect within two seconds.",
            "The limit is removed.",
        )
    }

    def about(self) -> str:
        return _described(self.access, self.row, _limited(self.row))
