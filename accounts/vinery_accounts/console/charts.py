"""Charts over time: the data that charts.js draws with uPlot, and the same as a table.

A chart is JSON in an element that is no script. So the strictest content security policy allows it.
Colours are classes, which the style sheet knows for light and dark."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from functools import cached_property
from itertools import islice
from statistics import median_low
from typing import Any, Final

_MAX_ROWS: Final = 100


@dataclass(frozen=True, slots=True)
class Series:
    """The values of one colour, one for each point; None where nothing was measured. `colour` is a
    class of the style sheet, such as `failed`; empty: the next of the palette."""

    name: str
    values: Sequence[float | None]
    colour: str = ""


@dataclass(frozen=True)
class Chart:
    """Durations in milliseconds as lines, or numbers as stacked bars or as lines. `points` have
    `since` and `until`. Screen readers read `what` and the largest value. `earlier` are the values
    of the period before: of all series together, or of the first line. `opens` is the address of a
    page to which `since` and `until` of a column can be added, `zooms` that for several columns;
    empty: columns open nothing."""

    name: str
    what: str
    points: Sequence[Any]
    series: Sequence[Series]
    zone: tzinfo
    is_of_durations: bool = False
    is_of_lines: bool = False  # numbers that have no sum
    is_wide: bool = False
    unit: str = ""
    earlier: Sequence[float | None] = ()
    opens: str = ""
    zooms: str = ""

    @property
    def has_lines(self) -> bool:
        return self.is_of_durations or self.is_of_lines

    @cached_property
    def colours(self) -> list[str]:
        return [each.colour or str(number) for number, each in enumerate(self.series, start=1)]

    def legend(self) -> Iterator[tuple[str, str]]:
        yield from zip(self.colours, (each.name for each in self.series), strict=True)

    @cached_property
    def columns(self) -> list[tuple[float | None, ...]]:
        return list(zip(*(each.values for each in self.series), strict=True))

    @property
    def largest_text(self) -> str:
        height_of = max if self.has_lines else sum
        heights = (height_of(value or 0 for value in each) for each in self.columns)
        return self._text(max(heights, default=0))

    def data(self) -> dict[str, Any]:
        """Return what the script draws, in Unix seconds; `step` is a column's usual length."""
        times = [int(each.since.timestamp()) for each in self.points]
        lengths = [each.until - each.since for each in self.points]
        end = [int(self.points[-1].until.timestamp())] if self.points else []
        return {
            "borders": [*times, *end],
            "step": median_low(lengths).total_seconds() if lengths else 0,
            "values": [list(map(_digits, each.values)) for each in self.series],
            "earlier": list(map(_digits, self.earlier))[: len(times)],
            "kind": "lines" if self.has_lines else "bars",
            "unit": "ms" if self.is_of_durations else self.unit,
            "zone": str(self.zone),
            "opens": self.opens,
            "zooms": self.zooms,
        }

    def rows(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the time and the texts of the newest columns with values, the newest first."""
        columns = reversed(list(zip(self.points, self.columns, strict=True)))
        found = ((point, values) for point, values in columns if any(values))
        for point, values in islice(found, _MAX_ROWS):
            time = point.since.astimezone(self.zone).strftime("%d %b %Y, %H:%M")
            yield time, ["-" if each is None else self._text(each) for each in values]

    def _text(self, value: float) -> str:
        return duration(value) if self.is_of_durations else f"{short(value)} {self.unit}".strip()


def _digits(value: float | None) -> float | None:
    return value and float(f"{value:.12g}")


def short(number: float) -> str:
    """Return a number in at most five characters: 950, 1.2k, 34M."""
    size = abs(number)
    for least, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        # A number that rounds up to the next unit is shown in that unit.
        if size >= least * 0.9995:
            return f"{number / least:.3g}{unit}"
    return f"{number:.3g}" if number % 1 else f"{number:.0f}"


def duration(ms: float) -> str:
    """Return milliseconds as a short text, which never breaks: 0 ms, 12 ms, 1.25 s, 3 min."""
    if ms < 999.5:
        return f"{ms:.3g}\u00a0ms"
    if ms < 120_000:
        return f"{ms / 1000:.3g}\u00a0s"
    return f"{ms / 60_000:.3g}\u00a0min"
