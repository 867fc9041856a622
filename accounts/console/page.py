"""What all pages of the console have in common: who looks, at which time and part of the books,
and headers that let no foreign script in."""

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
    """With the headers of every page of the console."""
    response.headers["Content-Security-Policy"] = _POLICY
    response.headers["Cache-Control"] = "no-store, private"
    response.headers["Referrer-Policy"] = "same-origin"
    return response


@dataclass(frozen=True, slots=True)
class Chip:
    """One filter that holds: what it says, and the address without it."""

    words: str
    address_without: str


class Page(LoginRequiredMixin, TemplateView):
    """One page, for whoever has signed in."""

    name: ClassVar[str]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Any method, with the headers."""
        return guarded(super().dispatch(request, *args, **kwargs))

    @property
    def user(self) -> User:
        """Who looks."""
        user = self.request.user
        assert isinstance(user, User)
        return user

    @cached_property
    def access(self) -> Access:
        """What they may see and do."""
        return Access.of(self.request.user)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """What every page shows."""
        context = super().get_context_data(**kwargs)
        return context | {"page": self.name, "whose": self._whose()}

    def _whose(self) -> str:
        if self.access.is_superuser:
            return "Everything on this platform"
        places = [place.name for place in self.access.organizations_seen()[:4]]
        if not self.access.organizations and not self.access.projects:
            return "Your own"
        return f"What you may see in {', '.join(places)}"


class UsagePage(Page):
    """A page about usage in a period, of which a part may be left out."""

    dimensions: ClassVar[frozenset[Dimension]] = frozenset(Dimension)  # that it filters by

    def follows(self, name: str, value: str) -> bool:
        """Whether a parameter of this page alone means something."""
        return False

    @cached_property
    def form(self) -> PeriodForm:
        """The period, as asked for."""
        return PeriodForm.of(self.request.GET)

    @cached_property
    def period(self) -> Period:
        """The period, found."""
        return self.form.found

    @cached_property
    def filters(self) -> Filters:
        """By the query's `user=7`, `model=tiny-chat` and so on. What means nothing is left out."""
        wanted = {
            dimension.plural: frozenset(_meant(dimension, self.request.GET.getlist(dimension)))
            for dimension in self.dimensions
            if dimension.value in self.request.GET
        }
        return Filters(**{name: values for name, values in wanted.items() if values})

    @property
    def question(self) -> Question:
        """For reports."""
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
        """The period and the filters, too."""
        return super().get_context_data(**kwargs) | {
            "form": self.form,
            "period": self.period,
            "chips": self._chips(),
            "left_out": [
                f"{name}={value}" for name, value in self._asked() if not self._means(name, value)
            ],
            "kept": self._kept(),
        }

    def address(self, **changes: str | None) -> str:
        """This page with other parameters; None takes one out."""
        query = self.request.GET.copy()
        for name, value in changes.items():
            if value is None:
                query.pop(name, None)
            else:
                query[name] = value
        return f"{self.request.path}?{query.urlencode()}"

    def _asked(self) -> list[tuple[str, str]]:
        return [(name, value) for name, values in self.request.GET.lists() for value in values]

    def _means(self, name: str, value: str) -> bool:
        """Of the period's own, its form tells what is wrong."""
        if name in PeriodForm.base_fields:
            return True
        if name in list(self.dimensions):
            return bool(_meant(Dimension(name), [value]))
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
        return [known.get(value, f"number {value}") if value else "nobody" for value in values]

    def _kept(self) -> list[tuple[str, str]]:
        """Parameters that the form of the period carries along."""
        return [
            (name, value)
            for name, value in self._asked()
            if name not in PeriodForm.base_fields and self._means(name, value)
        ]


def value_of(key: int | str | None) -> str:
    """A group's value as a filter's parameter."""
    return _NO_ID if key is None else str(key)


def spans_of(points: tuple[Point, ...]) -> list[Span]:
    """For charts."""
    return [Span(point.since, point.until) for point in points]


def _meant(dimension: Dimension, texts: list[str]) -> list[Any]:
    """The values among texts."""
    if dimension is Dimension.STATUS:
        known = [text for text in texts if text in (*STATUS_CLASSES, NO_STATUS)]
        return [None if text == NO_STATUS else text for text in known]
    if dimension not in _TABLES:
        return texts
    return [None if text == _NO_ID else int(text) for text in texts if _is_id(text)]


def _is_id(text: str) -> bool:
    return text == _NO_ID or (text.isascii() and text.isdigit() and len(text) <= 18)
