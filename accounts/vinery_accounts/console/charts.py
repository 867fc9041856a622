"""Charts over time: the geometry of bars and lines, which `console/chart.html` draws as SVG.

Charts have no scripts and no inline styles, so that the strictest content security policy allows
them. Colours are classes, which the style sheet knows for light and dark. Coordinates are texts.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from functools import cached_property
from itertools import groupby
from typing import Final, Protocol

# The frame of the values, in units of the drawing.
_LEFT: Final = 56
_TOP: Final = 10
_BELOW: Final = 26
_SIZE: Final = (420, 190)
_WIDE: Final = (840, 250)  # for a page with one chart
_HALF_CHAR: Final = 2.8  # of a label's characters on average
_BAR_SHARE: Final = 0.86  # of the width of a column
_MAX_Y_STEPS: Final = 4
_TIME_STEPS_S: Final = (
    *(60 * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(3600 * hours for hours in (1, 2, 3, 6, 12)),
    *(86_400 * days for days in (1, 2, 5, 10, 20, 50, 100)),
)


class Span(Protocol):
    """The time of a column, such as a point of a report."""

    @property
    def since(self) -> datetime: ...

    @property
    def until(self) -> datetime: ...


@dataclass(frozen=True, slots=True)
class Series:
    """The values of one colour, one for each point; None where nothing was measured. `colour` is a
    class of the style sheet, such as `failed`; empty: the next of the palette."""

    name: str
    values: Sequence[float | None]
    colour: str = ""


@dataclass(frozen=True)
class Chart:
    """Durations in milliseconds as lines, or numbers as stacked bars or as lines. Screen readers
    read `what` and the largest value instead of the picture."""

    name: str
    what: str
    points: Sequence[Span]
    series: Sequence[Series]
    zone: tzinfo
    is_of_durations: bool = False
    is_of_lines: bool = False  # numbers that have no sum
    is_wide: bool = False

    @property
    def has_lines(self) -> bool:
        return self.is_of_durations or self.is_of_lines

    @property
    def width(self) -> int:
        return (_WIDE if self.is_wide else _SIZE)[0]

    @property
    def height(self) -> int:
        return (_WIDE if self.is_wide else _SIZE)[1]

    @property
    def right(self) -> int:
        return self.width - 10

    @property
    def bottom(self) -> int:
        return self.height - _BELOW

    @cached_property
    def colours(self) -> list[str]:
        return [each.colour or str(number) for number, each in enumerate(self.series, start=1)]

    def legend(self) -> Iterator[tuple[str, str]]:
        yield from zip(self.colours, (each.name for each in self.series), strict=True)

    @cached_property
    def columns(self) -> list[tuple[float | None, ...]]:
        return list(zip(*(each.values for each in self.series), strict=True))

    @cached_property
    def largest(self) -> float:
        height_of = max if self.has_lines else sum
        return max((height_of(value or 0 for value in each) for each in self.columns), default=0)

    @property
    def largest_text(self) -> str:
        return self._text(self.largest)

    def y_marks(self) -> Iterator[tuple[str, str]]:
        for number in range(self._num_steps + 1):
            mark = self._step * number
            yield _text(self._y(mark)), self._text(mark)

    def x_marks(self) -> Iterator[tuple[str, str]]:
        """Yield the middle of the labels of some columns, which are not cut at the edge, and
        their times."""
        if self.points:
            form, max_labels = _time_form(self.points)
            for number in self._labelled(max_labels):
                label = self._clock(self.points[number].since, form)
                middle = self._x(number) + self._width / 2
                yield _text(min(middle, self.width - _HALF_CHAR * len(label))), label

    def bars(self) -> Iterator[tuple[str, str, str, str, str]]:
        """Yield the colour, left, top, width and height of each bar."""
        width = self._width * _BAR_SHARE
        for number, values in enumerate(self.columns):
            left, total, top = self._x(number), 0.0, self._y(0)
            for colour, value in zip(self.colours, values, strict=True):
                total += value or 0
                bottom, top = top, self._y(total)
                if value:
                    yield colour, _text(left), _text(top), _text(width), _text(bottom - top)

    def lines(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the colour and the points of each line. A line ends where nothing was measured."""
        for colour, series in zip(self.colours, self.series, strict=True):
            values = enumerate(series.values)
            for is_known, run in groupby(values, key=lambda pair: pair[1] is not None):
                if is_known:
                    pairs = [
                        f"{self._middle(number)},{_text(self._y(ms or 0))}" for number, ms in run
                    ]
                    yield colour, pairs

    def tooltips(self) -> Iterator[tuple[str, str, str]]:
        for number, (point, values) in enumerate(zip(self.points, self.columns, strict=True)):
            texts = (
                f"{each.name}: {'not measured' if value is None else self._text(value)}"
                for each, value in zip(self.series, values, strict=True)
            )
            text = "\n".join((self._clock(point.since, "%d %b %Y, %H:%M"), *texts))
            yield _text(self._x(number)), _text(self._width), text

    def _text(self, value: float) -> str:
        return duration(value) if self.is_of_durations else short(value)

    @cached_property
    def _step(self) -> float:
        return nice_step(self.largest / _MAX_Y_STEPS, is_whole=not self.is_of_durations)

    @cached_property
    def _num_steps(self) -> int:
        return max(1, math.ceil(self.largest / self._step - 1e-9))

    @cached_property
    def _width(self) -> float:
        """The width of a column. All columns are equal: the first and the last may be parts of an
        hour, and such bars would look small."""
        return (self.right - _LEFT) / len(self.points)

    def _x(self, number: int) -> float:
        return _LEFT + number * self._width

    def _middle(self, number: int) -> str:
        return _text(self._x(number) + self._width / 2)

    def _y(self, value: float) -> float:
        return self.bottom - value / (self._step * self._num_steps) * (self.bottom - _TOP)

    def _labelled(self, max_labels: int) -> Sequence[int]:
        """Return the numbers of the columns with a label: at full hours, quarters and so on, if
        there are any."""
        length_s = (self.points[-1].until - self.points[0].since).total_seconds()
        step_s = next((step for step in _TIME_STEPS_S if length_s / step <= max_labels), None)
        round_ones = [
            number
            for number, each in enumerate(self.points)
            if step_s and not self._local_s(each) % step_s
        ]
        stride = max(1, math.ceil(len(self.points) / max_labels))
        return round_ones or range(len(self.points))[stride // 2 :: stride]

    def _local_s(self, point: Span) -> int:
        offset = point.since.astimezone(self.zone).utcoffset() or timedelta()
        return int(point.since.timestamp() + offset.total_seconds())

    def _clock(self, at: datetime, form: str) -> str:
        return at.astimezone(self.zone).strftime(form)


def short(number: float) -> str:
    """Return a number in at most five characters: 950, 1.2k, 34M."""
    size = abs(number)
    for least, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        # A number that rounds up to the next unit is shown in that unit.
        if size >= least * 0.9995:
            return f"{number / least:.3g}{unit}"
    return f"{number:.3g}" if number % 1 else f"{number:.0f}"


def duration(ms: float) -> str:
    """Return milliseconds as a short text: 0 ms, 12 ms, 1.25 s, 3 min."""
    if ms < 999.5:
        return f"{ms:.3g} ms"
    if ms < 120_000:
        return f"{ms / 1000:.3g} s"
    return f"{ms / 60_000:.3g} min"


def nice_step(least: float, *, is_whole: bool) -> float:
    """Return the smallest of 1, 2 and 5 times a power of ten that is not below `least`."""
    if least <= 0:
        return 1
    power: float = 10.0 ** math.floor(math.log10(least))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))
    return max(1, step) if is_whole else step


def _time_form(points: Sequence[Span]) -> tuple[str, int]:
    if points[-1].until - points[0].since <= timedelta(hours=36):
        return "%H:%M", 7
    # The first and the last point may be parts of a day.
    if any(point.until - point.since >= timedelta(hours=23) for point in points):
        return "%d %b", 7
    return "%d %b %H:%M", 3


def _text(coordinate: float) -> str:
    return f"{coordinate:.2f}"
