"""Limits set, changed and removed in the console, by whoever leads the place above."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import reverse

from accounts.console.page import Page
from accounts.limits.rules import (
    MAX_AMOUNT,
    METRIC_CHOICES,
    WEEKDAY_CHOICES,
    WINDOW_CHOICES,
    Weekday,
    Window,
    in_words,
)
from accounts.models import Limit, LimitScope
from accounts.models.limits import check_percents, check_time_zone
from accounts.resources.owners import OWNERS, owners_of
from accounts.services import changes
from accounts.services.access import Access, Action

_MAX_CHOICES: Final = 100
_OFF: Final = "off"
_FIELDS: Final = {"scope": "of", "scope_id": "of"}
"""Where the form has what the row calls otherwise."""


class Percents(forms.CharField):
    """Percentages with commas between them, off for none, or nothing for the platform's."""

    def prepare_value(self, value: Any) -> Any:
        """For the page."""
        if isinstance(value, list):
            return ", ".join(map(str, value)) or _OFF
        return value

    def to_python(self, value: Any) -> Any:
        """From the page. Raises ValidationError for what are no percentages."""
        words = [word.strip() for word in (value or "").split(",") if word.strip()]
        if not words:
            return None
        if words == [_OFF]:
            return []
        if not all(word.isascii() and word.isdigit() and len(word) <= 3 for word in words):
            raise ValidationError("Give whole percentages with commas between them, or off.")
        percents = [int(word) for word in words]
        check_percents(percents)
        return percents


def percents_field() -> Percents:
    """At which percentages of a quota people are told."""
    return Percents(
        label="Alerts at",
        required=False,
        help_text="Percentages of a quota at which people are told, such as 80, 100; off: none; "
        "empty: those of the platform.",
    )


class LimitForm(forms.Form):
    """What a limit can be changed in."""

    amount = forms.IntegerField(min_value=1, max_value=MAX_AMOUNT, help_text="At most so many.")
    time_zone = forms.CharField(
        max_length=64,
        initial="UTC",
        validators=[check_time_zone],
        help_text="In which days, weeks and months begin, such as Europe/Berlin.",
    )
    week_start = forms.ChoiceField(
        label="Weeks begin on",
        choices=WEEKDAY_CHOICES,
        initial=Weekday.MONDAY,
        help_text="For a limit of a week.",
    )
    alert_at = percents_field()
    is_shadow = forms.BooleanField(
        label="Shadow",
        required=False,
        help_text="Refuse nothing, only count what would have been refused.",
    )

    def tell(self, error: ValidationError) -> None:
        """Show what the row refused."""
        known = error.message_dict if hasattr(error, "error_dict") else {"": error.messages}
        for name, told in known.items():
            field = _FIELDS.get(name, name)
            self.add_error(field if field in self.fields else None, ValidationError(told))


class ChangedLimitForm(LimitForm):
    """Of a limit that there is."""

    def __init__(self, limit: Limit, data: Any = None) -> None:
        super().__init__(data, initial={name: getattr(limit, name) for name in self.base_fields})
        if limit.window != Window.WEEK:
            del self.fields["week_start"]


class NewLimitForm(LimitForm):
    """And what is counted, for whom."""

    field_order = ("of", "model", "metric", "window", "amount")
    of = forms.CharField(label="For", widget=forms.Select)
    model = forms.CharField(
        required=False, max_length=255, help_text="Its name, for a limit of a model alone."
    )
    metric = forms.ChoiceField(label="What", choices=METRIC_CHOICES)
    window = forms.ChoiceField(
        choices=WINDOW_CHOICES,
        help_text="At any time is for requests at the same time, and for budgets of weighted "
        "tokens.",
    )

    def __init__(self, access: Access, data: Any = None, initial: Any = None) -> None:
        super().__init__(data, initial=initial)
        chosen = str((data or initial or {}).get("of", ""))
        select = self.fields["of"].widget
        assert isinstance(select, forms.Select)
        select.choices = list(_choices(access, chosen))
        if not access.is_superuser:
            del self.fields["model"]

    def clean_of(self) -> tuple[str, int]:
        """A scope and an id. Raises ValidationError for what is neither."""
        scope, _, owner = self.cleaned_data["of"].partition(":")
        is_id = owner.isascii() and owner.isdigit() and len(owner) <= 18
        if scope not in LimitScope.values or (scope in OWNERS) != is_id:
            raise ValidationError("Choose one of the list.")
        return scope, int(owner) if is_id else 0

    @property
    def limit(self) -> Limit:
        """What a valid form asks for, not stored yet."""
        values = dict(self.cleaned_data)
        scope, scope_id = values.pop("of")
        return Limit(scope=scope, scope_id=scope_id, **values)


def _choices(access: Access, chosen: str) -> Iterator[tuple[str, Any]]:
    """For whom one may set limits: the first of each kind, and who is chosen already."""
    if access.is_superuser:
        yield LimitScope.PLATFORM.value, "The whole platform"
        yield LimitScope.MODEL.value, "A model"
    for kind, table in OWNERS.items():
        rows = access.rows_to_limit(table)
        found = {row.pk: row for row in rows.order_by("-pk")[:_MAX_CHOICES]}
        scope, _, owner = chosen.partition(":")
        if scope == kind and owner.isdecimal():
            found |= {row.pk: row for row in rows.filter(pk=owner[:18])}
        if found:
            named = sorted((str(row), pk) for pk, row in found.items())
            yield f"{kind.capitalize()}s", [(f"{kind}:{pk}", name) for name, pk in named]


def may_set_limits(access: Access) -> bool:
    """Whether there is anybody whose limits one may set."""
    return access.is_superuser or any(
        access.rows_to_limit(table).exists() for table in OWNERS.values()
    )


def changeable(access: Access, limits: list[Limit]) -> set[int]:
    """The ids of those among the limits that one may change, with a query for each table."""
    if access.is_superuser:
        return {limit.pk for limit in limits}
    found: set[int] = set()
    for kind, table in OWNERS.items():
        owners = {limit.scope_id for limit in limits if limit.scope == kind}
        rows = access.rows_to_limit(table).filter(pk__in=owners).order_by()
        may = set(rows.values_list("pk", flat=True)) if owners else set()
        found |= {each.pk for each in limits if each.scope == kind and each.scope_id in may}
    return found


class LimitPage(Page):
    """What the pages about one limit share."""

    name = "limits"

    def limit(self) -> Limit:
        """The one of the address. Raises `Http404` for one that may not be seen, and
        `PermissionDenied` for one that may not be changed."""
        limit = get_object_or_404(self.access.rows(Limit), pk=self.kwargs["limit_id"])
        self.require(limit)
        return limit

    def require(self, limit: Limit) -> None:
        """Raises `PermissionDenied` for whoever may not set such a limit."""
        if not self.access.may(Action.MANAGE, limit):
            raise PermissionDenied

    def about(self, limit: Limit) -> dict[str, Any]:
        """It in words."""
        suffix = f":{limit.scope_id or limit.model}" if limit.scope != LimitScope.PLATFORM else ""
        scope = f"{limit.scope}{suffix}"
        owner = owners_of(self.access, [scope])[scope]
        return {"limit": limit, "owner": owner, "what": in_words(limit.metric, limit.window)}

    def done(self, message: str) -> HttpResponse:
        """Back to the list."""
        messages.success(self.request, message)
        return HttpResponseRedirect(reverse("console:limits"))


class SetLimit(LimitPage):
    """`/console/limits/new/`; `of=key:12` has chosen already for whom."""

    template_name = "console/limit_form.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """The form. Raises `PermissionDenied` for whoever may set no limit at all."""
        if not may_set_limits(self.access):
            raise PermissionDenied
        chosen = {"of": self.request.GET.get("of", "")}
        kwargs.setdefault("form", NewLimitForm(self.access, initial=chosen))
        return super().get_context_data(**kwargs)

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Set it."""
        form = NewLimitForm(self.access, request.POST)
        if form.is_valid():
            limit = form.limit
            self.require(limit)
            try:
                changes.add(limit)
            except ValidationError as error:
                form.tell(error)
            else:
                return self.done("The limit is set.")
        return self.render_to_response(self.get_context_data(form=form))


class ChangeLimit(LimitPage):
    """`/console/limits/<id>/`."""

    template_name = "console/limit_form.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """The form with what there is."""
        limit = kwargs.pop("limit", None) or self.limit()
        kwargs.setdefault("form", ChangedLimitForm(limit))
        return super().get_context_data(**kwargs) | self.about(limit)

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Change it."""
        limit = self.limit()
        form = ChangedLimitForm(limit, request.POST)
        if form.is_valid():
            try:
                changes.change(limit, **form.cleaned_data)
            except ValidationError as error:
                form.tell(error)
            else:
                return self.done("The limit is changed.")
        return self.render_to_response(self.get_context_data(form=form, limit=self.limit()))


class RemoveLimit(LimitPage):
    """`/console/limits/<id>/remove/`: asks, and does it."""

    template_name = "console/limit_remove.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """The limit."""
        return super().get_context_data(**kwargs) | self.about(self.limit())

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Take it away."""
        changes.remove(self.limit())
        return self.done("The limit is removed.")
