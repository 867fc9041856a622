"""Usage by user, project, key, model and so on: a chart of the largest groups, and a table."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from vinery_accounts.base.money import MILLION, short_money
from vinery_accounts.console import words
from vinery_accounts.console.charts import Chart, Series, duration
from vinery_accounts.console.page import UsagePage, at, value_of
from vinery_accounts.models import ApiKey, Currency, ModelWeight
from vinery_accounts.resources.limits import names_of
from vinery_accounts.usage import reports
from vinery_accounts.usage.export import csv_of
from vinery_accounts.usage.filters import Dimension
from vinery_accounts.usage.reports import Figures, Group, Point

_MAX_ROWS: Final = 100
_MAX_COLOURS: Final = 6
_MEASURES: Final[dict[str, tuple[str, Callable[[Figures], float]]]] = {
    "num_requests": ("requests", lambda figures: figures.num_requests),
    "num_tokens": ("tokens", lambda figures: figures.num_tokens),
    "num_errors": ("errors", lambda figures: figures.num_errors),
    "num_media": ("media", lambda figures: figures.num_media),
    "weighted_tokens": ("weighted tokens", lambda figures: figures.weighted_tokens),
    "cost": ("cost", lambda figures: figures.cost / MILLION),
}
_EXPORTED: Final = (
    *("num_requests", "num_errors", "num_prompt_tokens", "num_cached_tokens"),
    *("num_image_tokens", "num_output_tokens", "first_token_p50_ms"),
    *("num_media", "num_media_bytes", "num_media_pixels", "num_video_tokens"),
    *("num_limited", "num_client_errors", "num_server_errors", "num_cut_short"),
    *("weighted_tokens", "cost"),
)
_SOMETIMES: Final = ("num_media", "weighted_tokens", "cost")
_CHOICES: Final = {"by": tuple(Dimension), "most": tuple(_MEASURES)}
_NONE: Final = "(none)"  # no owner, or refused before the model was known
_UNANSWERED: Final = "(no answer)"


@at("usage/", "usage")
class Usage(UsagePage):
    """`by` is the dimension of the groups, `most` their order."""

    template_name = "console/usage.html"

    def follows(self, name: str, value: str) -> bool:
        return name in _CHOICES and value in ("", *_CHOICES[name])

    @property
    def by(self) -> Dimension:
        return Dimension(self._chosen("by", Dimension.MODEL))

    @property
    def measure(self) -> str:
        return self._chosen("most", "num_requests")

    def _chosen(self, name: str, default: str) -> str:
        asked = self.request.GET.get(name, "")
        return asked if asked in _CHOICES[name] else default

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        question = self.question
        found = reports.groups(
            question, [self.by], max_groups=_MAX_ROWS, largest=self.measure, with_points=True
        )
        totals = self._row("", "", reports.totals(question).figures)
        named = list(zip(self._names_of(found.groups), found.groups, strict=True))
        shown = {"num_media": totals["figures"].num_media, self.unit: True, self.measure: True}
        units = {
            name: unit
            for name, (unit, _) in _MEASURES.items()
            if name not in _SOMETIMES or shown.get(name)
        }
        return super().get_context_data(**kwargs) | {
            "by": _title(self.by),
            "dimensions": self._choices(
                "by", self.by, {each.value: _title(each) for each in Dimension}
            ),
            "measures": self._choices("most", self.measure, units),
            "chart": self._chart(named, reports.series(question)),
            "rows": [
                self._row(
                    name, self.address(**{self.by.value: value_of(group.values[0])}), group.figures
                )
                for name, group in named
            ],
            "columns": _columns(_title(self.by), totals["figures"], self.worth),
            "worth": self.worth,
            "num_more": found.num_groups - len(found.groups),
            "totals": totals,
            "export": self._export(),
            "table_export": f"{reverse('console:usage-table')}?{self.request.GET.urlencode()}",
            "is_empty": not totals["figures"].num_requests,
        }

    @cached_property
    def currency(self) -> str:
        return Currency.current()

    @cached_property
    def priced(self) -> frozenset[str]:
        return frozenset(ModelWeight.objects.values_list("model", flat=True))

    @property
    def unit(self) -> str:
        """The measure of what the usage is worth: the cost, or weighted tokens; empty: neither."""
        return "cost" if self.currency else "weighted_tokens" if self.priced else ""

    @property
    def worth(self) -> str:
        return _MEASURES[self.unit][0].capitalize() if self.unit else ""

    def _row(self, name: str, address: str, figures: Figures) -> dict[str, Any]:
        worth = words.count(round(figures.weighted_tokens))
        if self.currency:
            is_unpriced = self.by is Dimension.MODEL and name and name not in self.priced
            worth = short_money(figures.cost, self.currency)
            worth = "no price" if is_unpriced and not figures.cost else worth
        return _row(name, address, figures) | {"worth": worth}

    def _choices(
        self, name: str, chosen: str, choices: dict[str, str]
    ) -> list[tuple[str, str, bool]]:
        return [
            (text, self.address(**{name: value}), value == chosen)
            for value, text in choices.items()
        ]

    def _names_of(self, groups: Sequence[Group]) -> list[str]:
        if self.by is not Dimension.KEY:
            return [_name(self.by, group) for group in groups]
        ids = {key for group in groups for key in group.values if isinstance(key, int)}
        known = names_of(self.access, ApiKey, ids)
        return [
            known.get(key) or f"{group.names[0]} (number {key})"
            if isinstance(key := group.values[0], int)
            else _name(self.by, group)
            for group in groups
        ]

    def _chart(self, named: Sequence[tuple[str, Group]], all_points: tuple[Point, ...]) -> Chart:
        unit, value = _MEASURES[self.measure]
        series = [
            Series(name, [value(point.figures) for point in group.points])
            for name, group in named[:_MAX_COLOURS]
        ]
        if len(named) > len(series) or not named:
            rest = [
                max(0, value(point.figures) - sum(each.values[at] or 0 for each in series))
                for at, point in enumerate(all_points)
            ]
            series.append(Series("others" if named else unit, rest))
        name = f"{unit.capitalize()} by {_title(self.by)}"
        return Chart(
            name, f"{name}, over time.", all_points, series, self.period.zone, is_wide=True
        )

    def _export(self) -> str:
        """Return the address of the export; empty for filters without an owner or a model, which
        the API cannot express."""
        query = {"from": _moment(self.period.since), "to": _moment(self.period.until)}
        for dimension, values in self.filters.items():
            if "" in values or (None in values and dimension is not Dimension.STATUS):
                return ""
            query[dimension.value] = ",".join(sorted(map(value_of, values)))
        return f"{reverse('api-usage-export')}?{urlencode(query)}"


@at("usage/table.csv", "usage-table")
class UsageTable(Usage):
    """The table of the page with the same query string."""

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        context = self.get_context_data()
        columns = (str(self.by), *_EXPORTED)
        rows = [_cells(str(self.by), row) for row in (*context["rows"], context["totals"])]
        text = csv_of([dict(zip(columns, columns, strict=True)), *rows], columns)
        response = HttpResponse(text, content_type="text/csv; charset=utf-8")
        response["Content-Disposition"] = f'attachment; filename="usage-by-{self.by}.csv"'
        return response


def _cells(by: str, row: dict[str, Any]) -> dict[str, Any]:
    figures: Figures = row["figures"]
    latency = figures.first_token_ms
    return {
        by: row["name"] or "all",
        **{name: getattr(figures, name) for name in _EXPORTED if name != "first_token_p50_ms"},
        "cost": round(figures.cost / MILLION, 9) or None,
        "first_token_p50_ms": None if latency is None else round(latency.p50, 1),
    }


def _row(name: str, address: str, figures: Figures) -> dict[str, Any]:
    latency = figures.first_token_ms
    return {
        "name": name,
        "address": address,
        "figures": figures,
        "first_token": "" if latency is None else duration(latency.p50),
        "causes": words.causes(figures),
        "pixels": words.pixels(figures.num_media_pixels),
    }


def _columns(by: str, totals: Figures, worth: str) -> list[str]:
    return [
        by.capitalize(),
        *("#Requests", "#Errors", "#Input tokens", "#Cached"),
        *(["#Image tokens"] if totals.num_image_tokens else []),
        *(["#Video tokens"] if totals.num_video_tokens else []),
        "#Output tokens",
        *([f"#{worth}"] if worth else []),
        "#Time to first token (p50)",
        *(["#Media"] if totals.num_media else []),
    ]


def _title(by: Dimension) -> str:
    return "organisation" if by is Dimension.ORGANIZATION else by.value.replace("_", " ")


def _name(by: Dimension, group: Group) -> str:
    (key,), (name,) = group.values, group.names
    if key is None:
        return _UNANSWERED if by is Dimension.STATUS else _NONE
    return name or str(key) or _NONE


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
