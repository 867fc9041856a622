"""Limits: how much is used and left, and the pages that set, change and remove them."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final
from urllib.parse import urlencode

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
from vinery_accounts.base.money import MILLION, quantity, whole
from vinery_accounts.console.page import FormPage, Page, at
from vinery_accounts.console.rows import ChangeRow, ConfirmPage, NewRow, Rows, add_page
from vinery_accounts.console.words import reset
from vinery_accounts.limits.reservations import Level
from vinery_accounts.limits.rulebook import scope_of, valid_rules
from vinery_accounts.limits.rules import Metric, Rule, Weekday, Window, in_words
from vinery_accounts.limits.service import current_levels
from vinery_accounts.models import OWNERS, Currency, Limit, LimitScope
from vinery_accounts.resources.base import require
from vinery_accounts.resources.fields import MAX_ID
from vinery_accounts.resources.forms import ResourceForm
from vinery_accounts.resources.limits import LIMITS, MODEL_WEIGHTS, owner_choices, owners_of

_KIND: Final = ("model", "metric", "window")
_VALUES: Final = ("amount", "time_zone", "week_start", "alert_at", "is_shadow")
_OF_ALL: Final = (
    (LimitScope.PLATFORM.value, "The whole platform"),
    (LimitScope.MODEL.value, "A model"),
)
_MAX_QUOTAS: Final = 5
_NEVER: Final = datetime.max.replace(tzinfo=UTC)


@at("limits/", "limits")
class Limits(Page):
    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        rows = limit_rows(self.access, self.access.rows(Limit))
        return super().get_context_data(**kwargs) | {**rows, "may_set": may_set_limits(self.access)}


def limit_rows(access: Access, found: Iterable[Limit]) -> dict[str, Any]:
    """Return what pages show of these limits, and whether the current use is known."""
    limits = list(found)
    may_change = _changeable(access, limits)
    rules = list(valid_rules(limits).values())
    owners = owners_of(access, [rule.scope for rule in rules])
    levels = current_levels(rules) if rules else ()
    seen = read_quotas(access.quotas_seen(), timezone.now()) if rules else ()
    quotas = {quota.limit.pk: quota for quota in seen}
    by_rule = {level.rule.id: level for level in levels or ()}
    rows: list[dict[str, Any]] = []
    for rule in rules:
        level, quota = by_rule.get(rule.id), quotas.get(rule.id)
        numbers = _numbers(rule, level, quota)
        known = {name: each for name, each in numbers.items() if each is not None}
        rows.append(
            {
                "rule": rule,
                "owner": owners[rule.scope],
                "what": in_words(rule.metric, rule.window),
                **numbers,
                "texts": {k: quantity(rule.metric, known[k], rule.currency) for k in known},
                "percent": 100 * (numbers["used"] or 0) // numbers["amount"],
                "reset": reset(rule, level),
                "quota": quota,
                "unread": "each their own" if rule.scope_kind == LimitScope.END_USER else "unknown",
                "may_change": rule.id in may_change,
            }
        )
    return {"rows": rows, "is_known": levels is not None}


def _numbers(rule: Rule, level: Level | None, quota: Quota | None) -> dict[str, Any]:
    """Return the amount, how much is used and left, and the whole amount where the limit holds the
    share of one process; None if unknown, or different by end user. A new limit is counted from
    usage records, which the limiter has not read yet. Monitored limits and shares of a process are
    the limiter's alone."""
    amount = rule.amount if level is None else level.rule.amount
    is_share = amount != rule.amount
    numbers = {"amount": amount, "whole": rule.amount if is_share else None}
    if level is None or rule.scope_kind == LimitScope.END_USER:
        return numbers | {"used": None, "left": None}
    recorded = 0 if quota is None or rule.is_shadow or is_share else quota.num_used
    left = max(0, min(level.num_remaining, rule.amount - recorded))
    return numbers | {"used": max(level.num_used, recorded), "left": left}


def quota_rows(access: Access, found: list[Quota]) -> list[tuple[str, str, Quota]]:
    """Return the quotas that end first: a phrase for the owner, the limit in words, the quota."""
    rules = [(scope_of(each.limit), each.limit, each) for each in closest(found)]
    owners = owners_of(access, [scope for scope, *_ in rules])
    return [(owners[who], in_words(limit.metric, limit.window), each) for who, limit, each in rules]


def closest(quotas: list[Quota]) -> list[Quota]:
    """Return those that are used up, then those that run out first, then the fullest."""

    def end(quota: Quota) -> tuple[bool, datetime, int]:
        return quota.num_left > 0, quota.runs_out_at or _NEVER, -quota.percent

    return sorted((quota for quota in quotas if quota.num_used), key=end)[:_MAX_QUOTAS]


class LimitForm(ResourceForm):
    """A limit of the cost has its amount in the currency, others whole numbers."""

    amount = forms.IntegerField(min_value=1, max_value=MAX_ID, help_text="Maximum per window.")
    currency = ""

    def take_money(self, currency: str) -> None:
        self.currency = currency
        others = " For other limits a whole number." if "metric" in self.fields else ""
        text = f"Of the cost in {currency}, such as 12.50.{others}"
        self.fields["amount"] = forms.DecimalField(min_value=Decimal(1) / MILLION, help_text=text)

    def clean(self) -> dict[str, Any]:
        values = self.cleaned_data
        if self.currency and "amount" in values:
            is_money = values.get("metric", Metric.COST) == Metric.COST
            try:
                values["amount"] = whole(values["amount"], MILLION if is_money else 1)
            except ValueError as error:
                raise ValidationError({"amount": str(error)}) from None
        return values


class NewLimitForm(LimitForm):
    field_order = ("of", *_KIND, *_VALUES)
    of = forms.ChoiceField(label="Applies to")

    def __init__(self, access: Access, data: Any, of: str) -> None:
        kind = _KIND if access.is_superuser else _KIND[1:]
        initial = {"of": of, "time_zone": "UTC", "week_start": Weekday.MONDAY}
        super().__init__(LIMITS, access, data, (*kind, *_VALUES), initial=initial)
        owner, metric = self.fields["of"], self.fields["metric"]
        assert isinstance(owner, forms.ChoiceField) and isinstance(metric, forms.ChoiceField)
        owners = {kind: access.rows_to_limit(table) for kind, table in OWNERS.items()}
        found = owner_choices(owners, str((data or {}).get("of", "")) or of)
        owner.choices = [*(_OF_ALL if access.is_superuser else ()), *found]
        metric.label = "Limit"
        metric.choices = [(k, v) for k, v in METRIC_CHOICES if k != Metric.COST]
        if code := Currency.current():
            self.take_money(code)
            metric.choices = [*metric.choices, (Metric.COST.value, f"cost in {code}")]
        self.fields["window"].help_text = "Choose no window for concurrency and lifetime budgets."

    def clean_of(self) -> tuple[str, int]:
        scope, _, owner = self.cleaned_data["of"].partition(":")
        return scope, int(owner or 0)

    @property
    def columns(self) -> dict[str, Any]:
        scope, scope_id = self.cleaned_data["of"]
        return {**super().columns, "scope": scope, "scope_id": scope_id}


def may_set_limits(access: Access) -> bool:
    found = (access.rows_to_limit(table).exists() for table in OWNERS.values())
    return access.is_superuser or any(found)


def _changeable(access: Access, limits: list[Limit]) -> set[int]:
    owners: set[tuple[str, int]] = set()
    for kind, table in OWNERS.items():
        ids = {limit.scope_id for limit in limits if limit.scope == kind}
        rows = access.rows_to_limit(table).filter(pk__in=ids).order_by()
        owners |= {(kind, pk) for pk in rows.values_list("pk", flat=True)}
    may_all = access.is_superuser
    return {each.pk for each in limits if may_all or (each.scope, each.scope_id) in owners}


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


@at("limits/<int:row_id>/", "limit")
class ChangeLimit(ChangeRow):
    resource = LIMITS
    heading, note = "Change a limit", _NOTE
    names = _VALUES
    done = "The limit is changed."

    def texts(self) -> dict[str, Any]:
        remove = reverse("console:limit-remove", args=[self.row.pk])
        return {"intro": str(self.row), "remove": remove}

    def form_of(self, data: QueryDict | None) -> ResourceForm:
        require(self.access, Action.MANAGE, self.row)
        form = LimitForm(self.resource, self.access, data, self.names, self.row)
        if self.row.metric == Metric.COST:
            form.take_money(Currency.current())
            form.initial["amount"] = Decimal(self.row.amount) / MILLION
        if self.row.window != Window.WEEK:
            del form.fields["week_start"]
        return form

    def row_address(self, row: Limit) -> str:
        return reverse("console:limits")


add_page(ConfirmPage, LIMITS, "limits/<int:row_id>/remove/", "limit-remove", does="remove")


@at("model-weights/", "model-weights")
class Prices(Rows):
    resource = MODEL_WEIGHTS
    note = "A change counts for new requests, within two seconds. Past costs stay as they are."

    def buttons(self) -> Mapping[str, str]:
        return {**super().buttons(), "Currency": reverse("console:currency")}


@at("model-weights/new/", "model-weights-new")
class NewPrices(NewRow):
    """`model=qwen-a` fills in the form."""

    resource, heading = MODEL_WEIGHTS, "Prices or weights of a model"

    def make_form(self, data: QueryDict | None, row: Any = None, **more: Any) -> ResourceForm:
        more["initial"] = more["initial"] | {"model": self.request.GET.get("model", "")[:255]}
        return super().make_form(data, row, **more)


def prices_address(model: str) -> str:
    return f"{reverse('console:model-weights-new')}?{urlencode({'model': model})}"
