"""Usage by one or two of user, project, key, model and so on: a chart of the largest groups, and a
table."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Final
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from vinery_accounts.base.money import MILLION, short_money
from vinery_accounts.console import words
from vinery_accounts.console.charts import Chart, Series, duration
from vinery_accounts.console.page import UsagePage, at, before, value_of
from vinery_accounts.models import ApiKey, Currency, ModelWeight
from vinery_accounts.resources.limits import names_of
from vinery_accounts.usage import reports
from vinery_accounts.usage.export import csv_of
from vinery_accounts.usage.filters import Dimension, Key
from vinery_accounts.usage.reports import Figures, Group, Point
from vinery_accounts.usage.rollups import SUMS

_MAX_ROWS: Final = 100
_MAX_COLOURS: Final = 6
_MEASURES: Final = {
    "num_requests": "requests",
    "num_tokens": "tokens",
    "cached_share": "cached share of the input",
    "num_errors": "errors",
    "num_media": "media",
    "weighted_tokens": "weighted tokens",
    "cost": "cost",
}
# The column that ranks the groups for a share.
_RANKED_BY: Final = {"cached_share": "num_cached_tokens"}
_EXPORTED: Final = (
    *("num_requests", "num_errors", "num_prompt_tokens", "num_cached_tokens"),
    *("num_image_tokens", "num_output_tokens", "first_token_p50_ms"),
    *("num_media", "num_media_bytes", "num_media_pixels", "num_video_tokens"),
    *("num_limited", "num_client_errors", "num_server_errors", "num_cut_short"),
    *("weighted_tokens", "cost"),
)
# The columns of the table, with those that are shown only where there are some.
_COLUMNS: Final = {
    "num_requests": "Requests",
    "num_errors": "Errors",
    "num_prompt_tokens": "Input tokens",
    "num_cached_tokens": "Cached",
    "num_image_tokens": "Image tokens",
    "num_video_tokens": "Video tokens",
    "num_output_tokens": "Output tokens",
    "weighted_tokens": "Weighted tokens",
    "cost": "Cost",
    "first_token_ms": "Time to first token (p50)",
    "num_media": "Media",
}
_RARE: Final = ("num_image_tokens", "num_video_tokens", "num_media")
_WORTHS: Final = ("weighted_tokens", "cost")
_NAME: Final = "name"
_SORTS: Final = (*_COLUMNS, _NAME)
_CHOICES: Final = {
    "by": tuple(Dimension),
    "by2": tuple(Dimension),
    "most": tuple(_MEASURES),
    "sort": (*_SORTS, *(f"-{each}" for each in _SORTS)),
}
_NONE: Final = "(none)"  # no owner, or refused before the model was known
_UNANSWERED: Final = "(no answer)"


@at("usage/", "usage")
class Usage(UsagePage):
    """`by` and `by2` are the dimensions of the groups. `most` is what is counted. `sort` is the
    column that orders the rows, the largest first, or with `-` the smallest."""

    template_name = "console/usage.html"
    has_charts = True
    fields = ("by2",)

    def follows(self, name: str, value: str) -> bool:
        is_choice = name in _CHOICES and value in ("", *_CHOICES[name])
        return is_choice or super().follows(name, value)

    @cached_property
    def by(self) -> tuple[Dimension, ...]:
        chosen = self._chosen("by", Dimension.MODEL), self._chosen("by2", "")
        return tuple(Dimension(each) for each in dict.fromkeys(chosen) if each)

    @property
    def title(self) -> str:
        return " and ".join(map(_title, self.by))

    @property
    def measure(self) -> str:
        return self._chosen("most", "num_requests")

    @property
    def sort(self) -> str:
        return self._chosen("sort", "").removeprefix("-")

    def _chosen(self, name: str, default: str) -> str:
        asked = self.request.GET.get(name, "")
        return asked if asked in _CHOICES[name] else default

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        is_stored = self.sort in (*SUMS, "num_tokens")
        found = reports.groups(
            self.question,
            self.by,
            max_groups=_MAX_ROWS,
            largest=self.sort if is_stored else _RANKED_BY.get(self.measure, self.measure),
            with_points=True,
            num_drawn=_MAX_COLOURS,
        )
        figures, points = reports.whole_and_series(self.question, with_latencies=False)
        names = self._names_of(found.groups)
        named = list(zip(names, found.groups, strict=True))
        chart = self._chart(named, points)
        num = sum(value or 0 for column in chart.columns for value in column)
        units = {
            name: unit
            for name, unit in _MEASURES.items()
            if name == self.measure or self._is_shown(name, figures)
        }
        by = {each.value: _title(each) for each in Dimension}
        return super().get_context_data(**kwargs) | {
            "dimensions": self._choices("by", self.by[0], by),
            "seconds": [
                ("", "nothing else", len(self.by) == 1),
                *((value, title, value in self.by[1:]) for value, title in by.items()),
            ],
            "measures": self._choices("most", self.measure, units),
            "chart": chart,
            # How the sum of the columns differs from that of the period before.
            "change": chart.earlier and words.change(num, sum(filter(None, chart.earlier))),
            "rows": self._sorted([self._row(g.figures, name, g.values) for name, g in named]),
            "heads": list(self._heads(figures)),
            "worth": _COLUMNS.get(self.unit, ""),
            "num_more": found.num_groups - len(found.groups),
            "totals": self._row(figures),
            "is_empty": not figures.num_requests,
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

    def _is_shown(self, column: str, totals: Figures) -> bool:
        if column in _WORTHS:
            return column == self.unit
        return column not in _RARE or getattr(totals, column) > 0

    def _row(
        self, figures: Figures, names: Sequence[str] = (), values: Sequence[Key] = ()
    ) -> dict[str, Any]:
        """Return a group, or the totals. Each name leads to the usage of its value."""
        asked = dict(zip(self.by, map(value_of, values), strict=False))
        worth = words.count(round(figures.weighted_tokens))
        if self.currency:
            is_priced = asked.get(Dimension.MODEL) in (None, *self.priced)
            is_shown = is_priced or figures.cost
            worth = short_money(figures.cost, self.currency) if is_shown else "no price"
        latency = figures.first_token_ms
        links = [self.address(**{by: value}) for by, value in asked.items()]
        return {
            "names": names,
            "links": list(zip(names, links, strict=True)),
            "figures": figures,
            "first_token": "" if latency is None else duration(latency.p50),
            "causes": words.causes(figures),
            "errors": asked and self.errors_address(**asked),
            "pixels": words.pixels(figures.num_media_pixels),
            "worth": worth,
        }

    def _choices(
        self, name: str, chosen: str, choices: dict[str, str]
    ) -> list[tuple[str, str, bool]]:
        return [
            (text, self.address(**{name: value}), value == chosen)
            for value, text in choices.items()
        ]

    def _names_of(self, groups: Sequence[Group]) -> list[tuple[str, ...]]:
        pairs = (pair for group in groups for pair in zip(self.by, group.values, strict=True))
        ids: set[Any] = {value for by, value in pairs if by is Dimension.KEY}
        keys = names_of(self.access, ApiKey, ids - {None})

        def name(by: Dimension, value: Any, stored: str) -> str:
            if value is None:
                return _UNANSWERED if by is Dimension.STATUS else _NONE
            if by is Dimension.KEY:
                return keys.get(value) or f"{stored} (number {value})"
            return stored or str(value) or _NONE

        return [tuple(map(name, self.by, group.values, group.names)) for group in groups]

    def _sorted(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the rows in the order of `sort`: the reports order them by their own sums."""
        if not self.sort:
            return rows

        def key(row: dict[str, Any]) -> Any:
            if self.sort == _NAME:
                return [each.casefold() for each in row["names"]]
            value = getattr(row["figures"], self.sort)
            return value if isinstance(value, int | float) else value.p50 if value else -1.0

        is_ascending = self.request.GET["sort"].startswith("-") != (self.sort == _NAME)
        return sorted(rows, key=key, reverse=not is_ascending)

    def _heads(self, totals: Figures) -> Iterator[dict[str, Any]]:
        asked = self.request.GET.get("sort") or _RANKED_BY.get(self.measure, self.measure)
        for key, title in {_NAME: self.title.capitalize(), **_COLUMNS}.items():
            if not self._is_shown(key, totals):
                continue
            is_sorted = asked.removeprefix("-") == key
            is_turned = is_sorted and not asked.startswith("-")
            is_falling = is_turned != (key == _NAME)
            yield {
                "title": title,
                "is_figure": key != _NAME,
                "address": self.address(sort=f"-{key}" if is_turned else key),
                "order": ("descending" if is_falling else "ascending") if is_sorted else "",
            }

    def _chart(
        self, named: Sequence[tuple[tuple[str, ...], Group]], points: Sequence[Point]
    ) -> Chart:
        unit, is_share = _MEASURES[self.measure], self.measure in _RANKED_BY
        series = [
            Series(" · ".join(name), [self._value(each.figures) for each in group.points])
            for name, group in named[:_MAX_COLOURS]
        ]
        if not is_share and (len(named) > len(series) or not named):
            rest = []
            for at_, point in enumerate(points):
                drawn = sum(each.values[at_] or 0 for each in series)
                rest.append(max(0, (self._value(point.figures) or 0) - drawn))
            series.append(Series("others" if named else unit, rest))
        earlier: Sequence[Point] = ()
        if self.compares and not is_share:
            earlier = reports.series(before(self.question), with_latencies=False)
        name = f"{unit.capitalize()} by {self.title}"
        about = {"is_wide": True, "is_of_lines": is_share, "unit": "%" if is_share else ""}
        values = [self._value(each.figures) for each in earlier]
        return self.chart(name, f"{name}, over time.", points, series, earlier=values, **about)

    def _value(self, figures: Figures) -> float | None:
        """Return the measure: a share in hundredths, and the cost in the currency."""
        if self.measure == "cost":
            return figures.cost / MILLION
        if self.measure != "cached_share":
            return float(getattr(figures, self.measure))
        taken = figures.num_prompt_tokens
        return 100 * figures.num_cached_tokens / taken if taken else None

    @property
    def export(self) -> str:
        """The address of the export; empty for filters without an owner or a model, which the API
        cannot express."""
        query = {"from": self.period.since.isoformat(), "to": self.period.until.isoformat()}
        for dimension, values in self.filters.items():
            if "" in values or (None in values and dimension is not Dimension.STATUS):
                return ""
            query[dimension.value] = ",".join(sorted(map(value_of, values)))
        return f"{reverse('api-usage-export')}?{urlencode(query)}"


@at("usage/table.csv", "usage-table")
class UsageTable(Usage):
    """The table of the page with the same query string."""

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        name, text = self.file(self.get_context_data())
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return HttpResponse(text, content_type="text/csv; charset=utf-8", headers=headers)

    def file(self, context: dict[str, Any]) -> tuple[str, str]:
        """Return the name of the file and its text."""
        by = tuple(map(str, self.by))
        columns = (*by, *_EXPORTED)
        rows = [self._cells(row) for row in (*context["rows"], context["totals"])]
        text = csv_of([dict(zip(columns, columns, strict=True)), *rows], columns)
        return f"usage-by-{'-and-'.join(by)}.csv", text

    def _cells(self, row: dict[str, Any]) -> dict[str, Any]:
        figures: Figures = row["figures"]
        latency = figures.first_token_ms
        return {
            **{name: getattr(figures, name, None) for name in _EXPORTED},
            **dict(zip(self.by, row["names"] or ["all"] * len(self.by), strict=True)),
            "cost": round(figures.cost / MILLION, 9) or None,
            "first_token_p50_ms": latency and round(latency.p50, 1),
        }


def _title(by: Dimension) -> str:
    return "organisation" if by is Dimension.ORGANIZATION else by.value.replace("_", " ")
