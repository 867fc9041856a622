"""The parts that pages of the console share: the user, forms, the period and the filters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property
from typing import Any, ClassVar, Final, TypeVar
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django import forms
from django.conf import settings
from django.contrib.auth.mixins import LoginRequiredMixin
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.views.generic import TemplateView

from vinery_accounts.access.access import Access
from vinery_accounts.base.errors import Outcome
from vinery_accounts.console.charts import Chart, Series
from vinery_accounts.console.menu import access_of, guarded, may_open, zone_of
from vinery_accounts.models import OWNERS, User
from vinery_accounts.models.limits import check_time_zone
from vinery_accounts.resources.base import Conflict
from vinery_accounts.resources.fields import id_of
from vinery_accounts.resources.limits import names_of
from vinery_accounts.usage import periods
from vinery_accounts.usage.export import Selection, since_of_newest
from vinery_accounts.usage.filters import NO_STATUS, STATUS_CLASSES, Conditions, Dimension
from vinery_accounts.usage.periods import Granularity
from vinery_accounts.usage.reports import Point, Question

PageT = TypeVar("PageT", bound="type[Page]")

_NO_ID: Final = "none"
_MAX_COLUMNS: Final = 400  # of hours or minutes in a chart
ERRORS: Final = tuple(each.value for each in Outcome if each.is_error)


urlpatterns: Final[list[URLPattern]] = []
"""All pages below `/console/`, in the order in which their classes are declared."""


def at(address: str, url_name: str, *does: str, **options: Any) -> Callable[[PageT], PageT]:
    """Give a page its URL below `/console/`, and the URL a name, which is by default that of its
    template, too. With `does` the page has a URL for each of its actions:
    `keys/<int:row_id>/revoke/` with the name `key-revoke`."""

    def register(page: PageT) -> PageT:
        page.name = page.name or address.partition("/")[0] or "overview"
        page.template_name = page.template_name or f"console/{url_name.replace('-', '_')}.html"
        actions = [(f"{each}/", f"-{each}", {"does": each}) for each in does]
        for end, suffix, action in actions or [("", "", {})]:
            view = page.as_view(**options, **action)
            urlpatterns.append(path(f"{address}{end}", view, name=f"{url_name}{suffix}"))
        return page

    return register


class Page(LoginRequiredMixin, TemplateView):
    name: ClassVar[str] = ""  # the entry of the menu: by default the first part of the address
    needs: ClassVar[str] = ""  # what of `Access` a reader needs besides the right to the entry

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Answer. Raises `PermissionDenied` for a page that the user's role does not open."""
        if request.user.is_authenticated:
            is_open = not self.needs or getattr(self.access, self.needs)
            if not (is_open and may_open(self.access, self.name)):
                raise PermissionDenied
        with timezone.override(zone_of(request)):
            response = super().dispatch(request, *args, **kwargs)
            if isinstance(response, TemplateResponse):
                response.render()  # in the reader's zone
        return guarded(response)

    @property
    def user(self) -> User:
        user = self.request.user
        assert isinstance(user, User)
        return user

    @cached_property
    def access(self) -> Access:
        return access_of(self.request)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        times_in = timezone.get_current_timezone_name()
        return super().get_context_data(**kwargs) | {"page": self.name, "times_in": times_in}

    def base_url(self) -> str:
        public_url: str = settings.VINERY_PUBLIC_URL
        return public_url or self.request.build_absolute_uri("/").rstrip("/")


class LivePage(Page):
    """A page that stays up to date: htmx fetches the page again when the stream of events says so,
    and replaces changed parts: elements with an id and the attribute `data-live`. The fetch has the
    header `X-Live`, and gets the content without the frame, so that no message about an action is
    lost. Without scripts, a reload shows the same. The template extends `layout`."""

    throttle: ClassVar[str] = ""
    """The least time between two fetches, as htmx takes it: ` throttle:5s`."""

    @property
    def is_refresh(self) -> bool:
        return "x-live" in self.request.headers

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        layout = "console/live.html" if self.is_refresh else "console/base.html"
        return super().get_context_data(**kwargs) | {"layout": layout}


class FormPage(Page, ABC):
    template_name = "console/form.html"
    heading: str = ""
    button: str = "Save"
    intro: str = ""
    note: str = ""
    field_of_column: ClassVar[Mapping[str, str]] = {}
    """The field that shows errors of a column, where its name is another one."""

    @abstractmethod
    def form_of(self, data: QueryDict | None) -> Any:
        """Return a `ResourceForm` with the fields that the user has sent, or with initial ones."""

    @abstractmethod
    def save(self, form: Any) -> HttpResponse:
        """Store a valid form. Raises ValidationError for values that are not valid together."""

    def texts(self) -> dict[str, Any]:
        """Return further texts, and `remove`, the address of the page that removes."""
        return {}

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        if "form" not in kwargs:
            kwargs["form"] = self.form_of(None)
        texts = {name: getattr(self, name) for name in ("heading", "button", "intro", "note")}
        return super().get_context_data(**kwargs) | texts | self.texts()

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        form = self.form_of(request.POST)
        if form.is_valid():
            try:
                return self.save(form)
            except ValidationError as error:
                form.add_errors(error, **self.field_of_column)
            except Conflict as error:
                form.add_error(None, str(error))
        return self.render_to_response(self.get_context_data(form=form))


class UsagePage(Page):
    has_charts: ClassVar[bool] = False
    fields: ClassVar[tuple[str, ...]] = ()  # of its own in the form of the period
    # Reports about end users read so many records: the newest. 0: all of the period.
    max_records: ClassVar[int] = 10_000

    @cached_property
    def form(self) -> PeriodForm:
        return PeriodForm.of(self.request.GET)

    @cached_property
    def period(self) -> Period:
        return self.form.found

    @cached_property
    def filters(self) -> Conditions:
        return {
            dimension: frozenset(values)
            for dimension in Dimension
            if (values := _values(dimension, self.request.GET.getlist(dimension)))
        }

    @property
    def dimensions_read(self) -> frozenset[Dimension]:
        return frozenset(self.filters)

    @cached_property
    def read_since(self) -> datetime | None:
        """The time since which the page reads records; None: all of the period."""
        if not self.max_records or Dimension.END_USER not in self.dimensions_read:
            return None
        visible, (since, until) = self.access.visible(), (self.period.since, self.period.until)
        asked = Selection(visible=visible, since=since, until=until, filters=self.filters)
        return since_of_newest(asked, self.max_records)

    @cached_property
    def question(self) -> Question:
        period = self.period
        return Question(
            since=self.read_since or period.since,
            until=period.until,
            filters=self.filters,
            visible=self.access.visible(),
            zone=period.zone,
            granularity=None if self.read_since else period.granularity,
        )

    @property
    def compares(self) -> bool:
        return self.has_charts and self.request.GET.get("compare") == "on"

    def chart(
        self, name: str, what: str, points: Sequence[Point], series: Sequence[Series], **more: Any
    ) -> Chart:
        """Return a chart. Columns open this page for their period, and requests of a minute."""
        zone = self.period.zone
        bounds = dict.fromkeys(PeriodForm.base_fields) | {"zone": str(zone)}
        zooms = self.address(**bounds)
        is_of_minutes = self.question.point is Granularity.MINUTE
        opens = self.requests_address(**bounds) if is_of_minutes else zooms
        return Chart(name, what, points, series, zone, opens=opens, zooms=zooms, **more)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        own = {*PeriodForm.base_fields, *self.fields}
        return super().get_context_data(**kwargs) | {
            "form": self.form,
            "period": self.period,
            # The text of each active filter, and the address without it.
            "chips": [
                (
                    f"{dimension.replace('_', ' ')}: {', '.join(self._names(dimension, values))}",
                    self.address(**{dimension.value: None}),
                )
                for dimension, values in self.filters.items()
            ],
            # What the form of the period keeps of the address.
            "kept": [(k, v) for k, vs in self.request.GET.lists() for v in vs if k not in own],
            "compare": self.address(compare=None if self.compares else "on"),
            "query": self.address(before=None).partition("?")[2],
            "views": self.user.saved_views.filter(page=self.name),
            "has_email": settings.VINERY_HAS_EMAIL,
        }

    def address(self, to: str = "", /, **changes: str | list[str] | None) -> str:
        """Return the address of this page, or of another one, with these changes of the query."""
        query = {**dict(self.request.GET.lists()), **changes}
        kept = {name: value for name, value in query.items() if value is not None}
        return f"{to or self.request.path}?{urlencode(kept, doseq=True)}"

    def requests_address(self, **changes: str | list[str] | None) -> str:
        """Return the address of the requests of this page, with these changes of the query."""
        known = (*Dimension, *PeriodForm.base_fields)
        others = dict.fromkeys(name for name in self.request.GET if name not in known)
        return self.address(reverse("console:requests"), **{**others, **changes})

    def errors_address(self, **changes: str | list[str] | None) -> str:
        """Return the address of the requests of this page that got an error."""
        return self.requests_address(**{"outcome": list(ERRORS), **changes})

    def _names(self, dimension: Dimension, values: frozenset[Any]) -> list[str]:
        if dimension.name_column is None:
            return sorted(map(value_of, values))
        known = names_of(self.access, OWNERS[dimension], values - {None})
        return [known.get(value, f"number {value}") if value else "none" for value in values]


def csv_file(name: str, text: str) -> HttpResponse:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(text, content_type="text/csv; charset=utf-8", headers=headers)


def before(question: Question) -> Question:
    """Return the same question about the period before, of the same length, in whole hours for a
    period that begins with one."""
    since = question.since - (question.until - question.since)
    if not (question.since.minute or question.since.second):
        since = since.replace(minute=0, second=0, microsecond=0)
    return replace(question, since=since, until=question.since)


def value_of(key: int | str | None) -> str:
    return _NO_ID if key is None else str(key)


def _values(dimension: Dimension, texts: list[str]) -> list[Any]:
    if dimension is Dimension.STATUS:
        known = [text for text in texts if text in (*STATUS_CLASSES, NO_STATUS)]
        return [None if text == NO_STATUS else text for text in known]
    if dimension.name_column is None:
        return [text for text in texts if "\0" not in text]  # PostgreSQL refuses it
    return [id_of(text) for text in texts if text == _NO_ID or id_of(text) is not None]


OWN: Final = "own"
_USUAL: Final = "24h"
_LENGTHS: Final = {
    "1h": ("Last hour", timedelta(hours=1)),
    "24h": ("Last 24 hours", timedelta(days=1)),
    "7d": ("Last 7 days", timedelta(days=7)),
    "30d": ("Last 30 days", timedelta(days=30)),
    "90d": ("Last 90 days", timedelta(days=90)),
    "365d": ("Last 12 months", timedelta(days=365)),
}
_MONTHS: Final = {"month": "This month", "last-month": "Last month"}


@dataclass(frozen=True, slots=True)
class Period:
    """From `since` to before `until`. `granularity` None is derived from the length."""

    since: datetime
    until: datetime
    granularity: Granularity | None = None
    zone: tzinfo = UTC


def _moment_field(label: str) -> forms.DateTimeField:
    widget = forms.DateTimeInput({"type": "datetime-local"}, format="%Y-%m-%dT%H:%M")
    checks = [periods.check_moment]
    return forms.DateTimeField(label=label, required=False, validators=checks, widget=widget)


class PeriodForm(forms.Form):
    """The form above every chart. With an invalid period the page shows the last day."""

    period = forms.ChoiceField(
        choices=[
            *((name, words) for name, (words, _) in _LENGTHS.items()),
            *_MONTHS.items(),
            (OWN, "Custom range"),
        ],
        required=False,
    )
    since = _moment_field("From")
    until = _moment_field("To")
    granularity = forms.ChoiceField(
        label="Interval",
        choices=[("", "Auto"), *((each.value, f"1 {each}") for each in Granularity)],
        required=False,
    )
    zone = forms.CharField(
        label="Time zone", required=False, max_length=64, validators=[check_time_zone]
    )

    @classmethod
    def of(cls, query: Any) -> PeriodForm:
        asked = {name: query.get(name, "") for name in cls.base_fields}
        usual = OWN if asked["since"] or asked["until"] else _USUAL
        zone = asked["zone"] or timezone.get_current_timezone_name()
        return cls(asked | {"period": asked["period"] or usual, "zone": zone})

    def clean(self) -> dict[str, Any]:
        super().clean()
        values = self.cleaned_data
        values["found"] = found = self._found(values)
        if found.since >= found.until:
            raise forms.ValidationError("The period ends before it begins.")
        interval = found.granularity or periods.usual_granularity(found.since, found.until)
        most = periods.MAX_POINTS if interval is Granularity.DAY else _MAX_COLUMNS
        if (found.until - found.since) / interval.length > most:
            text = f"The interval {interval} makes more than {most} columns. "
            raise forms.ValidationError(f"{text}Choose a longer interval, or a shorter period.")
        return values

    @property
    def found(self) -> Period:
        if self.is_valid():
            period: Period = self.cleaned_data["found"]
            return period
        now = timezone.now()
        return Period(now - timedelta(days=1), now, zone=timezone.get_current_timezone())

    @staticmethod
    def _found(values: dict[str, Any]) -> Period:
        zone = ZoneInfo(values.get("zone") or "UTC")
        granularity = Granularity(values["granularity"]) if values.get("granularity") else None
        name = values.get("period") or _USUAL
        now = timezone.now()
        if name in _MONTHS:
            months = periods.calendar_month(now.astimezone(zone), is_last=name == "last-month")
            return Period(*months, granularity, zone)
        if name != OWN:
            since = _rounded(now - _LENGTHS[name][1], _LENGTHS[name][1], zone)
            return Period(since, now, granularity, zone)
        # Django reads both as UTC.
        ends = [at and at.replace(tzinfo=zone) for at in map(values.get, ("since", "until"))]
        until = ends[1] or now
        return Period(ends[0] or until - timedelta(days=1), until, granularity, zone)


def _rounded(since: datetime, length: timedelta, zone: tzinfo) -> datetime:
    """Return the hour, or the day, in which a long period begins: its first column is whole, and
    needs no roll-ups of minutes."""
    if length < timedelta(days=1):
        return since
    hour = since.astimezone(zone).replace(minute=0, second=0, microsecond=0)
    return hour if length < timedelta(days=7) else hour.replace(hour=0)
