"""Usage by one or two of user, project, key and so on: a chart of the largest groups, a table."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Final
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.template.defaultfilters import filesizeformat
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from vinery_accounts.base.money import MILLION, short_money
from vinery_accounts.console import words
from vinery_accounts.console.charts import Chart, Series, duration
from vinery_accounts.console.page import UsagePage, at, before, csv_file, value_of
from vinery_accounts.models import ApiKey, Currency, ModelWeight
from vinery_accounts.usage import reports
from vinery_accounts.usage.export import csv_of
from vinery_accounts.usage.filters import Dimension
from vinery_accounts.usage.reports import Figures, Group, Point

Named = Sequence[tuple[tuple[str, ...], Group]]  # with the names of their values
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
_NAME: Final = "name"
_SORTS: Final = (*_COLUMNS, _NAME)
_CHOICES: Final = {
    "by": tuple(Dimension),
    "by2": tuple(Dimension),
    "most": tuple(_MEASURES),
    "sort": (*_SORTS, *(f"-{each}" for each in _SORTS)),
}
_NONE: Final = "(none)"  # no owner, or refused before the model was known
_TITLES: Final = {each.value: each.replace("z", "s").replace("_", " ") for each in Dimension}


@at("usage/", "usage")
class Usage(UsagePage):
    """`by` and `by2` are the dimensions of the groups. `most` is what is counted. `sort` is the
    column that orders the rows, the largest first, or with `-` the smallest."""

    has_charts = True
    fields = ("by2",)
    max_rows = 50

    @cached_property
    def by(self) -> tuple[Dimension, ...]:
        chosen = self._chosen("by", Dimension.MODEL), self._chosen("by2", "")
        return tuple(Dimension(each) for each in dict.fromkeys(chosen) if each)

    @property
    def dimensions_read(self) -> frozenset[Dimension]:
        return super().dimensions_read.union(self.by)

    @cached_property
    def title(self) -> str:
        return " and ".join(_TITLES[each] for each in self.by)

    @cached_property
    def measure(self) -> str:
        return self._chosen("most", "num_requests")

    @cached_property
    def drawn(self) -> tuple[str, ...]:
        """The sums of which the chart makes the measure."""
        share = ("num_cached_tokens", "num_prompt_tokens")
        return share if self.measure in _RANKED_BY else reports.SIZES[self.measure]

    @cached_property
    def sort(self) -> str:
        return self._chosen("sort", "").removeprefix("-")

    def _chosen(self, name: str, default: str) -> str:
        asked = self.request.GET.get(name, "")
        return asked if asked in _CHOICES[name] else default

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        is_stored = self.sort in reports.SIZES
        found = reports.groups(
            self.question,
            self.by,
            max_groups=self.max_rows,
            largest=self.sort if is_stored else _RANKED_BY.get(self.measure, self.measure),
            with_points=True,
            num_drawn=_MAX_COLOURS,
            drawn=self.drawn,
        )
        figures = reports.totals(self.question).figures
        points = reports.series(self.question, sums=self.drawn, with_latencies=False)
        named = list(zip(self._names_of(found.groups), found.groups, strict=True))
        chart = self._chart(named, points)
        num = sum(value or 0 for column in chart.columns for value in column)
        units = {
            name: unit
            for name, unit in _MEASURES.items()
            if name == self.measure or self._is_shown(name, figures)
        }
        return super().get_context_data(**kwargs) | {
            "dimensions": self._choices("by", self.by[0], _TITLES),
            "seconds": [
                ("", "nothing else", len(self.by) == 1),
                *((value, title, value in self.by[1:]) for value, title in _TITLES.items()),
            ],
            "measures": self._choices("most", self.measure, units),
            "chart": chart,
            # How the sum of the columns differs from that of the period before.
            "change": chart.earlier and words.change(num, sum(filter(None, chart.earlier))),
            "rows": self._sorted(list(self._rows(named, figures))),
            "heads": list(self._heads(figures)),
            "num_more": found.num_groups - len(found.groups),
            "totals": {"figures": figures, "cells": self._cells(figures, self._shown(figures))},
            "is_empty": not figures.num_requests,
        }

    @cached_property
    def currency(self) -> str:
        return Currency.current()

    @cached_property
    def priced(self) -> frozenset[str]:
        return frozenset(ModelWeight.objects.values_list("model", flat=True))

    @cached_property
    def unit(self) -> str:
        """The measure of what the usage is worth: the cost, or weighted tokens; empty: neither."""
        return "cost" if self.currency else "weighted_tokens" if self.priced else ""

    def _is_shown(self, column: str, totals: Figures) -> bool:
        if column in ("weighted_tokens", "cost"):
            return column == self.unit
        return column not in _RARE or getattr(totals, column) > 0

    def _shown(self, totals: Figures) -> list[str]:
        return [each for each in _COLUMNS if self._is_shown(each, totals)]

    def _rows(self, named: Named, totals: Figures) -> Iterator[dict[str, Any]]:
        """Yield the groups. Names lead to the usage of their value, errors to the requests."""
        shown = self._shown(totals)
        usage_of = [self.address(**{by: None}) for by in self.by]
        errors_of = self.errors_address(**dict.fromkeys(self.by))
        for names, group in named:
            asked = [(by, value_of(each)) for by, each in zip(self.by, group.values, strict=True)]
            ends = [f"&{urlencode([each])}" for each in asked]
            # Those without a model include unknown models, by whose names requests are found.
            errors = errors_of + "".join(ends) if ("model", "") not in asked else ""
            model = dict(asked).get(Dimension.MODEL)
            links = [(name, at + end) for name, at, end in zip(names, usage_of, ends, strict=True)]
            cells = self._cells(group.figures, shown, model, errors)
            yield {"names": names, "links": links, "figures": group.figures, "cells": cells}

    def _cells(
        self, figures: Figures, shown: Sequence[str], model: str | None = None, errors: str = ""
    ) -> SafeString:
        """Return the figures of a row: as templates they took a third of a page's time."""
        cells = []
        for column in shown:
            value, more = getattr(figures, column), ""
            text = f"{value:,}" if isinstance(value, int) else ""
            if column == "num_errors":
                if errors and value:
                    text = format_html('<a href="{}">{}</a>', errors, text)
                more = words.causes(figures)
            elif column == "num_media" and value:
                pixels = words.pixels(figures.num_media_pixels)
                more = f"{filesizeformat(figures.num_media_bytes)}, {pixels}"
            elif column == "first_token_ms":
                text = "not measured" if value is None else duration(value.p50)
            elif column == "weighted_tokens":
                text = words.count(round(value))
            elif column == "cost":
                is_priced = value or model in (None, *self.priced)
                text = short_money(value, self.currency) if is_priced else "no price"
            more = more and f'<div class="quiet">{more}</div>'
            cells.append(f'<td class="figure" data-name="{_COLUMNS[column]}">{text}{more}</td>')
        return SafeString("\n".join(cells))

    def _choices(self, name: str, chosen: str, known: dict[str, str]) -> list[Any]:
        """Return the text and the address of each, and whether it is chosen."""
        found = known.items()
        return [(text, self.address(**{name: key}), key == chosen) for key, text in found]

    def _names_of(self, groups: Sequence[Group]) -> list[tuple[str, ...]]:
        pairs = (pair for group in groups for pair in zip(self.by, group.values, strict=True))
        ids: set[Any] = {value for by, value in pairs if by is Dimension.KEY}
        rows = self.access.rows(ApiKey).filter(pk__in=ids - {None})
        keys = {pk: f"{name} ({hint})" for pk, name, hint in rows.values_list("pk", "name", "hint")}

        def name(by: Dimension, value: Any, stored: str) -> str:
            if value is None:
                return "(no answer)" if by is Dimension.STATUS else _NONE
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
        titles = {_NAME: self.title.capitalize(), **_COLUMNS}
        for key in (_NAME, *self._shown(totals)):
            is_sorted = asked.removeprefix("-") == key
            is_turned = is_sorted and not asked.startswith("-")
            is_falling = is_turned != (key == _NAME)
            yield {
                "title": titles[key],
                "is_figure": key != _NAME,
                "address": self.address(sort=f"-{key}" if is_turned else key),
                "order": ("descending" if is_falling else "ascending") if is_sorted else "",
            }

    def _chart(self, named: Named, points: Sequence[Point]) -> Chart:
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
        """The address of the export; empty for filters that the API cannot express."""
        query = {"from": self.period.since.isoformat(), "to": self.period.until.isoformat()}
        for dimension, values in self.filters.items():
            if "" in values or (None in values and dimension is not Dimension.STATUS):
                return ""
            query[dimension.value] = ",".join(sorted(map(value_of, values)))
        return f"{reverse('api-usage-export')}?{urlencode(query)}"


@at("usage/table.csv", "usage-table")
class UsageTable(Usage):
    """The table of the page with the same query string, and with more rows."""

    max_rows = 100
    max_records = 0

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        return csv_file(*self.file(self.get_context_data()))

    def file(self, context: dict[str, Any]) -> tuple[str, str]:
        """Return the name of the file and its text."""
        by = tuple(map(str, self.by))
        columns = (*by, *_EXPORTED)
        rows = [self._line(row) for row in (*context["rows"], context["totals"])]
        text = csv_of([dict(zip(columns, columns, strict=True)), *rows], columns)
        return f"usage-by-{'-and-'.join(by)}.csv", text

    def _line(self, row: dict[str, Any]) -> dict[str, Any]:
        figures: Figures = row["figures"]
        latency = figures.first_token_ms
        return {
            **{name: getattr(figures, name, None) for name in _EXPORTED},
            **dict(zip(self.by, row.get("names", ["all"] * len(self.by)), strict=True)),
            "cost": round(figures.cost / MILLION, 9) or None,
            "first_token_p50_ms": latency and round(latency.p50, 1),
        }
