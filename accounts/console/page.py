"""What all pages of the console share: the user, the period, the filters, and headers that forbid
foreign scripts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, TypeVar

from django.contrib.auth.mixins import LoginRequiredMixin
from django.http import HttpRequest, HttpResponseBase
from django.views.generic import TemplateView

from accounts.console.charts import Span
from accounts.console.period import Period, PeriodForm
from accounts.models import ApiKey, Organization, Project, User
from accounts.resources.owners import names_of
from accounts.services.access import Access
from accounts.usage.filters import NO_STATUS, STATUS_CLASSES, Dimension, Filters
from accounts.usage.reports import Point, Question

ResponseT = TypeVar("ResponseT", bound=HttpResponseBase)

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_NO_ID: Final = "none"
_TABLES: Final[Mapping[Dimension, Any]] = {
    Dimension.KEY: ApiKey,
    Dimension.USER: User,
    Dimension.PROJECT: Project,
    Dimension.ORGANIZATION: Organization,
}


def guarded(response: ResponseT) -> ResponseT:
    """Return the response with the headers of every page of the console."""
    response.headers["Content-Security-Policy"] = _POLICY
    response.headers["Cache-Control"] = "no-store, private"
    response.headers["Referrer-Policy"] = "same-origin"
    return response


@dataclass(frozen=True, slots=True)
class Chip:
    """One active filter: its text, and the address without it."""

    words: str
    address_without: str


class Page(LoginRequiredMixin, TemplateView):
    """One page, for a signed-in user."""

    name: ClassVar[str]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Respond with the headers of the console."""
        return guarded(super().dispatch(request, *args, **kwargs))

    @property
    def user(self) -> User:
        """The signed-in user."""
        user = self.request.user
        assert isinstance(user, User)
        return user

    @cached_property
    def access(self) -> Access:
        """The access of the user."""
        return Access.of(self.request.user)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add what every page shows."""
        context = super().get_context_data(**kwargs)
        return context | {"page": self.name, "whose": self._whose()}

    def _whose(self) -> str:
        if self.access.is_superuser:
            return "Everything on this platform"
        names = [each.name for each in self.access.organizations_seen()[:4]]
        if not self.access.organizations and not self.access.projects:
            return "Your own"
        return f"What you may see in {', '.join(names)}"


class UsagePage(Page):
    """A page about usage in a period, with filters."""

    dimensions: ClassVar[frozenset[Dimension]] = frozenset(Dimension)  # that it filters by

    def follows(self, name: str, value: str) -> bool:
        """Return whether a parameter that only this page has is valid."""
        return False

    @cached_property
    def form(self) -> PeriodForm:
        """The form of the period."""
        return PeriodForm.of(self.request.GET)

    @cached_property
    def period(self) -> Period:
        """The period of the page."""
        return self.form.found

    @cached_property
    def filters(self) -> Filters:
        """The filters `user=7`, `model=tiny-chat` and so on. Invalid ones are ignored."""
        wanted = {
            dimension.plural: frozenset(_values(dimension, self.request.GET.getlist(dimension)))
            for dimension in self.dimensions
            if dimension.value in self.request.GET
        }
        return Filters(**{name: values for name, values in wanted.items() if values})

    @property
    def question(self) -> Question:
        """The question for reports."""
        period = self.period
        return Question(
            since=period.since,
            until=period.until,
            filters=self.filters,
            visible=self.access.visible(),
            zone=period.zone,
            granularity=period.granularity,
        )

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the period and the filters."""
        return super().get_context_data(**kwargs) | {
            "form": self.form,
            "period": self.period,
            "chips": self._chips(),
            "left_out": [
                f"{name}={value}"
                for name, value in self._asked()
                if not self._is_valid(name, value)
            ],
            "kept": self._kept(),
        }

    def address(self, **changes: str | None) -> str:
        """Return the address of this page with other parameters; None removes one."""
        query = self.request.GET.copy()
        for name, value in changes.items():
            if value is None:
                query.pop(name, None)
            else:
                query[name] = value
        return f"{self.request.path}?{query.urlencode()}"

    def _asked(self) -> list[tuple[str, str]]:
        return [(name, value) for name, values in self.request.GET.lists() for value in values]

    def _is_valid(self, name: str, value: str) -> bool:
        """Return whether a parameter is valid. The form of the period reports its own errors."""
        if name in PeriodForm.base_fields:
            return True
        if name in list(self.dimensions):
            return bool(_values(Dimension(name), [value]))
        return self.follows(name, value)

    def _chips(self) -> list[Chip]:
        return [
            Chip(f"{dimension}: {', '.join(self._names(dimension, values))}", without)
            for dimension, values in self.filters.by_dimension().items()
            for without in [self.address(**{dimension.value: None})]
        ]

    def _names(self, dimension: Dimension, values: frozenset[Any]) -> list[str]:
        table = _TABLES.get(dimension)
        if table is None:
            return sorted(map(value_of, values))
        known = names_of(self.access, table, values - {None})
        return [known.get(value, f"number {value}") if value else "none" for value in values]

    def _kept(self) -> list[tuple[str, str]]:
        """Return the parameters that the form of the period keeps."""
        return [
            (name, value)
            for name, value in self._asked()
            if name not in PeriodForm.base_fields and self._is_valid(name, value)
        ]


def value_of(key: int | str | None) -> str:
    """Return the value of a group as the parameter of a filter."""
    return _NO_ID if key is None else str(key)


def spans_of(points: tuple[Point, ...]) -> list[Span]:
    """Return the spans of a chart."""
    return [Span(point.since, point.until) for point in points]


def _values(dimension: Dimension, texts: list[str]) -> list[Any]:
    """Return the valid values among texts."""
    if dimension is Dimension.STATUS:
        known = [text for text in texts if text in (*STATUS_CLASSES, NO_STATUS)]
        return [None if text == NO_STATUS else text for text in known]
    if dimension not in _TABLES:
        return texts
    return [None if text == _NO_ID else int(text) for text in texts if _is_id(text)]


def _is_id(text: str) -> bool:
    return text == _NO_ID or (text.isascii() and text.isdigit() and len(text) <= 18)
