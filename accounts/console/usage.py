"""Usage by user, project, key, model and so on: a chart of the largest groups, and a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

from django.urls import reverse

from accounts.console import charts, words
from accounts.console.charts import Chart, Drawing, Series
from accounts.console.page import UsagePage, spans_of, value_of
from accounts.models import ApiKey
from accounts.resources.owners import names_of
from accounts.usage import reports
from accounts.usage.filters import Dimension
from accounts.usage.reports import Figures, Group, Point

_MAX_ROWS: Final = 100
_MAX_COLOURS: Final = 6
_MEASURES: Final[dict[str, tuple[str, Callable[[Figures], float]]]] = {
    "num_requests": ("requests", lambda figures: figures.num_requests),
    "num_tokens": ("tokens", lambda figures: figures.num_tokens),
    "num_errors": ("errors", lambda figures: figures.num_errors),
}
_WITHOUT: Final = "(none)"
_UNANSWERED: Final = "(no answer)"
_NONE: Final = "(none)"  # refused before the model was known


@dataclass(frozen=True, slots=True)
class Row:
    """One group of the table. `address` shows it alone."""

    name: str
    address: str
    figures: Figures
    first_token: str
    energy: str


@dataclass(frozen=True, slots=True)
class Choice:
    """One dimension or one measure, as a link."""

    words: str
    address: str
    is_chosen: bool


class Usage(UsagePage):
    """`/console/usage/`."""

    name = "usage"
    template_name = "console/usage.html"

    def follows(self, name: str, value: str) -> bool:
        """Accept the dimension of groups, and the measure."""
        known = {"by": [each.value for each in Dimension], "most": list(_MEASURES)}
        return name in known and value in ("", *known[name])

    @property
    def by(self) -> Dimension:
        """The dimension of the groups; default: the model."""
        asked = self.request.GET.get("by", "")
        return Dimension(asked) if asked in list(Dimension) else Dimension.MODEL

    @property
    def measure(self) -> str:
        """The measure that groups are sorted by."""
        asked = self.request.GET.get("most", "")
        return asked if asked in _MEASURES else "num_requests"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the largest groups, and the totals."""
        question = self.question
        found = reports.groups(
            question, [self.by], max_groups=_MAX_ROWS, largest=self.measure, with_points=True
        )
        totals = reports.totals(question).figures
        names = self._names_of(found.groups)
        return super().get_context_data(**kwargs) | {
            "by": self.by,
            "dimensions": self._choices(
                "by", self.by, {each.value: each.value for each in Dimension}
            ),
            "measures": self._choices(
                "most", self.measure, {name: unit for name, (unit, _) in _MEASURES.items()}
            ),
            "drawing": self._drawing(found.groups, names, reports.series(question)),
            "rows": [
                self._row(group, name) for group, name in zip(found.groups, names, strict=True)
            ],
            "num_more": found.num_groups - len(found.groups),
            "totals": totals,
            "totals_first_token": _p50(totals),
            "totals_energy": _energy(totals),
            "export": self._export(),
            "is_empty": not totals.num_requests,
        }

    def _choices(self, name: str, chosen: str, choices: dict[str, str]) -> list[Choice]:
        return [
            Choice(words, self.address(**{name: value}), value == chosen)
            for value, words in choices.items()
        ]

    def _names_of(self, groups: Sequence[Group]) -> list[str]:
        """Return the names of the groups. Keys may share a name, so theirs have details."""
        if self.by is not Dimension.KEY:
            return [_name(self.by, group) for group in groups]
        ids = {key for group in groups for key in group.values if isinstance(key, int)}
        known = names_of(self.access, ApiKey, ids)
        return [_name_of_key(group, known) for group in groups]

    def _row(self, group: Group, name: str) -> Row:
        (key,) = group.values
        address = self.address(**{self.by.value: value_of(key)})
        figures = group.figures
        return Row(name, address, figures, _p50(figures), _energy(figures))

    def _drawing(
        self, groups: Sequence[Group], names: Sequence[str], all_points: tuple[Point, ...]
    ) -> Drawing:
        """Return a chart with the largest groups in colours, and the rest as others."""
        unit, value = _MEASURES[self.measure]
        largest = groups[:_MAX_COLOURS]
        series = [
            Series(name, [value(point.figures) for point in group.points])
            for group, name in zip(largest, names, strict=False)
        ]
        if len(groups) > len(largest) or not groups:
            known = [[each or 0 for each in one.values] for one in series]
            rest = [
                max(0, value(point.figures) - sum(values[at] for values in known))
                for at, point in enumerate(all_points)
            ]
            series.append(Series("others" if groups else unit, rest))
        chart = Chart(
            name=f"{unit.capitalize()} by {self.by}",
            what=f"{unit.capitalize()} by {self.by}, over time.",
            spans=spans_of(all_points),
            series=series,
            zone=self.period.zone,
            format=charts.short,
        )
        return Drawing(chart.name, tuple(each.name for each in series), charts.bars(chart))

    def _export(self) -> str:
        """Return the address of the export; empty for filters without an owner or a model, which
        the API cannot express."""
        query = {"from": _moment(self.period.since), "to": _moment(self.period.until)}
        for dimension, values in self.filters.by_dimension().items():
            if "" in values or (None in values and dimension is not Dimension.STATUS):
                return ""
            query[dimension.value] = ",".join(sorted(map(value_of, values)))
        return f"{reverse('api-usage-export')}?{urlencode(query)}"


def _name(by: Dimension, group: Group) -> str:
    (key,), (name,) = group.values, group.names
    if key is None:
        return _UNANSWERED if by is Dimension.STATUS else _WITHOUT
    return name or str(key) or _NONE


def _name_of_key(group: Group, known: Mapping[int, str]) -> str:
    (key,), (name,) = group.values, group.names
    if not isinstance(key, int):
        return _name(Dimension.KEY, group)
    return known.get(key) or f"{name} (number {key})"


def _p50(figures: Figures) -> str:
    found = figures.first_token_ms
    return "" if found is None else charts.duration(found.p50)


def _energy(figures: Figures) -> str:
    return words.energy(figures.energy_mj) if figures.energy_mj else ""


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
