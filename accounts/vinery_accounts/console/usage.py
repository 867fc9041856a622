"""Usage by one or two of user, project, key, model and so on: a chart of the largest groups, and a
table."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain
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
from vinery_accounts.usage.filters import Dimension
from vinery_accounts.usage.reports import Figures, Group, Point
from vinery_accounts.usage.rollups import SUMS

_MAX_ROWS: Final = 100
_MAX_COLOURS: Final = 6


def _cached_share(figures: Figures) -> float | None:
    taken = figures.num_prompt_tokens
    return 100 * figures.num_cached_tokens / taken if taken else None


_MEASURES: Final[dict[str, tuple[str, Callable[[Figures], float | None]]]] = {
    "num_requests": ("requests", lambda figures: figures.num_requests),
    "num_tokens": ("tokens", lambda figures: figures.num_tokens),
    "cached_share": ("cached share of the input", _cached_share),
    "num_errors": ("errors", lambda figures: figures.num_errors),
    "num_media": ("media", lambda figures: figures.num_media),
    "weighted_tokens": ("weighted tokens", lambda figures: figures.weighted_tokens),
    "cost": ("cost", lambda figures: figures.cost / MILLION),
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
_SOMETIMES: Final = ("num_media", *_WORTHS)
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
_BETWEEN: Final = " · "


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
        found = self._groups()
        figures, points = reports.whole_and_series(self.question)
        totals = self._row((), [], figures)
        shown = {"num_media": figures.num_media, self.unit: True, self.measure: True}
        named = list(zip(self._names_of(found.groups), found.groups, strict=True))
        chart = self._chart(named, points)
        units = {
            name: unit
            for name, (unit, _) in _MEASURES.items()
            if name not in _SOMETIMES or shown.get(name)
        }
        return super().get_context_data(**kwargs) | {
            "by": self.title,
            "dimensions": self._choices("by", self.by[0]),
            "seconds": [
                ("", "nothing else", len(self.by) == 1),
                *((each.value, _title(each), each in self.by[1:]) for each in Dimension),
            ],
            "measures": self._choices("most", self.measure, units),
            "chart": chart,
            "change": self._change(chart),
            "rows": self._sorted(
                [
                    self._row(*self._about(name, group)) | {"errors": self._errors_of(group)}
                    for name, group in named
                ]
            ),
            "heads": list(self._heads(figures)),
            "worth": self.worth,
            "num_more": found.num_groups - len(found.groups),
            "totals": totals,
            "export": self._export(),
            "table_export": f"{reverse('console:usage-table')}?{self.request.GET.urlencode()}",
            "is_empty": not figures.num_requests,
        }

    def _groups(self) -> reports.Groups:
        is_stored = self.sort in (*SUMS, "num_tokens")
        largest = self.sort if is_stored else _RANKED_BY.get(self.measure, self.measure)
        return reports.groups(
            self.question,
            self.by,
            max_groups=_MAX_ROWS,
            largest=largest,
            with_points=True,
            num_drawn=_MAX_COLOURS,
        )

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

    def _row(
        self, names: tuple[str, ...], addresses: list[str], figures: Figures
    ) -> dict[str, Any]:
        worth = words.count(round(figures.weighted_tokens))
        if self.currency:
            models = (
                name for by, name in zip(self.by, names, strict=False) if by == Dimension.MODEL
            )
            is_unpriced = any(name not in self.priced for name in models)
            worth = short_money(figures.cost, self.currency)
            worth = "no price" if is_unpriced and not figures.cost else worth
        return _row(names, addresses, figures) | {"worth": worth}

    def _choices(
        self, name: str, chosen: str, choices: dict[str, str] | None = None
    ) -> list[tuple[str, str, bool]]:
        choices = choices or {each.value: _title(each) for each in Dimension}
        return [
            (text, self.address(**{name: value}), value == chosen)
            for value, text in choices.items()
        ]

    def _about(
        self, names: tuple[str, ...], group: Group
    ) -> tuple[tuple[str, ...], list[str], Figures]:
        """Return the arguments of `_row`: each name leads to the usage of its value."""
        pairs = zip(self.by, group.values, strict=True)
        addresses = [self.address(**{by.value: value_of(value)}) for by, value in pairs]
        return names, addresses, group.figures

    def _errors_of(self, group: Group) -> str:
        return self.errors_address(**dict(zip(self.by, map(value_of, group.values), strict=True)))

    def _names_of(self, groups: Sequence[Group]) -> list[tuple[str, ...]]:
        ids = {
            key
            for group in groups
            for by, key in zip(self.by, group.values, strict=True)
            if by is Dimension.KEY and isinstance(key, int)
        }
        known = names_of(self.access, ApiKey, ids) if ids else {}

        def name(by: Dimension, key: Any, stored: str) -> str:
            if by is Dimension.KEY and key is not None:
                return known.get(key) or f"{stored} (number {key})"
            return _name(by, key, stored)

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
        shown = {
            key: each
            for key, each in _COLUMNS.items()
            if (key == self.unit if key in _WORTHS else getattr(totals, key) or key not in _RARE)
        }
        asked = self.request.GET.get("sort") or _RANKED_BY.get(self.measure, self.measure)
        for key, title in {_NAME: self.title.capitalize(), **shown}.items():
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
        unit, value = _MEASURES[self.measure]
        is_share = self.measure in _RANKED_BY
        series = [
            Series(_BETWEEN.join(name), [value(point.figures) for point in group.points])
            for name, group in named[:_MAX_COLOURS]
        ]
        if not is_share and (len(named) > len(series) or not named):
            rest = [
                max(0, (value(point.figures) or 0) - sum(each.values[at] or 0 for each in series))
                for at, point in enumerate(points)
            ]
            series.append(Series("others" if named else unit, rest))
        earlier = (
            reports.series(before(self.question), with_latencies=False)
            if self.compares and not is_share
            else ()
        )
        name = f"{unit.capitalize()} by {self.title}"
        return self.chart(
            name,
            f"{name}, over time.",
            points,
            series,
            is_wide=True,
            is_of_lines=is_share,
            unit="%" if is_share else "",
            earlier=[value(each.figures) for each in earlier],
        )

    def _change(self, chart: Chart) -> str:
        """Return how the sum of the columns differs from that of the period before."""
        if not chart.earlier:
            return ""
        now, earlier = chain.from_iterable(chart.columns), chart.earlier
        return words.change(sum(filter(None, now)), sum(filter(None, earlier)))

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
        name, text = self.file(self.get_context_data())
        response = HttpResponse(text, content_type="text/csv; charset=utf-8")
        response["Content-Disposition"] = f'attachment; filename="{name}"'
        return response

    def file(self, context: dict[str, Any]) -> tuple[str, str]:
        """Return the name of the file and its text."""
        by = tuple(map(str, self.by))
        columns = (*by, *_EXPORTED)
        rows = [_cells(by, row) for row in (*context["rows"], context["totals"])]
        text = csv_of([dict(zip(columns, columns, strict=True)), *rows], columns)
        return f"usage-by-{'-and-'.join(by)}.csv", text


def _cells(by: tuple[str, ...], row: dict[str, Any]) -> dict[str, Any]:
    figures: Figures = row["figures"]
    latency = figures.first_token_ms
    names = row["names"] or ["all"] * len(by)
    return {
        **dict(zip(by, names, strict=True)),
        **{name: getattr(figures, name) for name in _EXPORTED if name != "first_token_p50_ms"},
        "cost": round(figures.cost / MILLION, 9) or None,
        "first_token_p50_ms": None if latency is None else round(latency.p50, 1),
    }


def _row(names: tuple[str, ...], addresses: list[str], figures: Figures) -> dict[str, Any]:
    latency = figures.first_token_ms
    return {
        "names": names,
        "links": list(zip(names, addresses, strict=False)),
        "figures": figures,
        "first_token": "" if latency is None else duration(latency.p50),
        "causes": words.causes(figures),
        "pixels": words.pixels(figures.num_media_pixels),
    }


def _title(by: Dimension) -> str:
    return "organisation" if by is Dimension.ORGANIZATION else by.value.replace("_", " ")


def _name(by: Dimension, key: Any, stored: str) -> str:
    if key is None:
        return _UNANSWERED if by is Dimension.STATUS else _NONE
    return stored or str(key) or _NONE


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
