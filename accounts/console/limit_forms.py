"""The pages that set, change and remove limits."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect

from accounts.console.page import FormPage, Page, id_of
from accounts.limits.rules import Weekday, Window, in_words
from accounts.models import Limit, LimitScope
from accounts.resources.base import require
from accounts.resources.forms import PercentsField, ResourceForm
from accounts.resources.limits import LIMITS
from accounts.resources.owners import OWNERS, owners_of
from accounts.services.access import Access, Action

_MAX_CHOICES: Final = 100
_KIND: Final = ("model", "metric", "window")
_VALUES: Final = ("amount", "time_zone", "week_start", "alert_at", "is_shadow")


class ChangedLimitForm(ResourceForm):
    """The fields of a stored limit that can be changed."""

    alert_at = PercentsField()

    def __init__(self, limit: Limit, data: Any = None) -> None:
        names = [name for name in _VALUES if name != "week_start" or limit.window == Window.WEEK]
        initial = {name: getattr(limit, name) for name in names}
        super().__init__(LIMITS, names, data, initial=initial)


class NewLimitForm(ResourceForm):
    """The fields of a new limit."""

    field_order = ("of", *_KIND, *_VALUES)
    of = forms.CharField(label="For", widget=forms.Select)
    alert_at = PercentsField()

    def __init__(self, access: Access, data: Any = None, of: str = "") -> None:
        kind = _KIND if access.is_superuser else _KIND[1:]
        initial = {"of": of, "time_zone": "UTC", "week_start": Weekday.MONDAY}
        super().__init__(LIMITS, (*kind, *_VALUES), data, initial=initial)
        select = self.fields["of"].widget
        assert isinstance(select, forms.Select)
        select.choices = list(_choices(access, str((data or {}).get("of", "")) or of))
        metric, window = self.fields["metric"], self.fields["window"]
        metric.label = "What"
        window.help_text = "At any time is for concurrency, and for budgets of weighted tokens."

    def clean_of(self) -> tuple[str, int]:
        """Return a scope and an id. Raises ValidationError for anything else."""
        scope, _, owner = self.cleaned_data["of"].partition(":")
        owner_id = id_of(owner)
        if scope not in LimitScope.values or (scope in OWNERS) != (owner_id is not None):
            raise ValidationError("Choose an entry of the list.")
        return scope, owner_id or 0

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of the limit."""
        scope, scope_id = self.cleaned_data["of"]
        return {**super().columns, "scope": scope, "scope_id": scope_id}


def _choices(access: Access, chosen: str) -> Iterator[tuple[str, Any]]:
    """Yield the owners whose limits the user may set: the newest, and the chosen one."""
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
            yield f"{kind.capitalize()}s", [(f"{kind}:{pk}", name) for name, pk in named]


def may_set_limits(access: Access) -> bool:
    """Return whether the user may set limits of any owner."""
    return access.is_superuser or any(
        access.rows_to_limit(table).exists() for table in OWNERS.values()
    )


def changeable(access: Access, limits: list[Limit]) -> set[int]:
    """Return the ids of the limits that the user may change, with one query for each table."""
    if access.is_superuser:
        return {limit.pk for limit in limits}
    found: set[int] = set()
    for kind, table in OWNERS.items():
        owners = {limit.scope_id for limit in limits if limit.scope == kind}
        rows = access.rows_to_limit(table).filter(pk__in=owners).order_by()
        may = set(rows.values_list("pk", flat=True)) if owners else set()
        found |= {each.pk for each in limits if each.scope == kind and each.scope_id in may}
    return found


class SetLimit(FormPage):
    """`/console/limits/new/`; `of=key:12` chooses the owner."""

    name = "limits"
    template_name = "console/limit_form.html"
    field_of_column = {"scope": "of", "scope_id": "of"}

    def form_of(self, data: QueryDict | None) -> NewLimitForm:
        """Return the form. Raises `PermissionDenied` for a user who may set no limit."""
        if not may_set_limits(self.access):
            raise PermissionDenied
        return NewLimitForm(self.access, data, of=self.request.GET.get("of", ""))

    def save(self, form: NewLimitForm) -> HttpResponse:
        """Set the limit."""
        LIMITS.create(self.access, form.columns)
        return _done(self.request, "The limit is set.")


class LimitPage(Page):
    """A page about one limit."""

    name = "limits"

    @cached_property
    def limit(self) -> Limit:
        """The limit of the address. Raises `Http404` for one that the user may not see, and
        `PermissionDenied` for one that they may not change."""
        limit = get_object_or_404(self.access.rows(Limit), pk=self.kwargs["limit_id"])
        require(self.access, Action.MANAGE, limit)
        return limit

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the limit and its texts."""
        limit = self.limit
        suffix = f":{limit.scope_id or limit.model}" if limit.scope != LimitScope.PLATFORM else ""
        scope = f"{limit.scope}{suffix}"
        return super().get_context_data(**kwargs) | {
            "limit": limit,
            "owner": owners_of(self.access, [scope])[scope],
            "what": in_words(limit.metric, limit.window),
        }


class ChangeLimit(LimitPage, FormPage):
    """`/console/limits/<id>/`."""

    template_name = "console/limit_form.html"

    def form_of(self, data: QueryDict | None) -> ChangedLimitForm:
        """Return the form with the current values."""
        return ChangedLimitForm(self.limit, data)

    def save(self, form: ChangedLimitForm) -> HttpResponse:
        """Change the limit."""
        LIMITS.change(self.access, self.limit, form.columns)
        return _done(self.request, "The limit is changed.")


class RemoveLimit(LimitPage):
    """`/console/limits/<id>/remove/`: asks for a confirmation, and removes."""

    template_name = "console/limit_remove.html"

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Remove the limit."""
        LIMITS.remove(self.access, self.limit)
        return _done(request, "The limit is removed.")


def _done(request: HttpRequest, message: str) -> HttpResponse:
    messages.success(request, message)
    return redirect("console:limits")
