"""Charts as SVG, drawn on the server: stacked bars and lines over time.

Charts have no scripts and no inline styles, so that the strictest content security policy allows
them. Colours are classes, which the style sheet knows for light
and dark. A tooltip is the `<title>` of a column that is as high as the chart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from itertools import groupby
from typing import Final

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

# In units of the drawing, which is as wide as its column of the page.
_WIDTH: Final = 420
_HEIGHT: Final = 190
_LEFT: Final = 56
_RIGHT: Final = 10
_TOP: Final = 10
_BOTTOM: Final = 26
_MAX_Y_STEPS: Final = 4
_TIME_STEPS_S: Final = (
    *(60 * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(3600 * hours for hours in (1, 2, 3, 6, 12)),
    *(86_400 * days for days in (1, 2, 5, 10, 20, 50, 100)),
)
_NOTHING: Final = mark_safe("")

Format = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Span:
    """The period of one value of a series: from `since` to before `until`."""

    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class Series:
    """The values of one colour, one for each span; None where nothing was measured."""

    name: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart. Screen readers read `what` and the largest value instead of the picture."""

    name: str
    what: str
    spans: Sequence[Span]
    series: Sequence[Series]
    zone: tzinfo
    format: Format
    is_whole: bool = True  # fractions do not occur


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart with its legend."""

    name: str
    legend: tuple[str, ...]
    picture: SafeString


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


def bars(chart: Chart) -> SafeString:
    """Return stacked bars, a column for each span."""
    sums = [sum(values) for values in _columns(chart)]
    frame = _Frame(chart, max(sums, default=0))
    shapes = format_html_join(
        "",
        '<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>',
        _stacked(chart, frame),
    )
    return _picture(chart, frame, shapes, max(sums, default=0))


def lines(chart: Chart) -> SafeString:
    """Return a line for each series, with gaps where nothing was measured."""
    known = [value for each in chart.series for value in each.values if value is not None]
    largest = max(known, default=0)
    frame = _Frame(chart, largest)
    shapes = [
        shape
        for number, series in enumerate(chart.series)
        for shape in _line(frame, chart.spans, series, _colour(number))
    ]
    return _picture(chart, frame, format_html_join("", "{}", ((each,) for each in shapes)), largest)


def _colour(number: int) -> str:
    return f"colour-{number + 1}"


class _Frame:
    """The scales: times from left to right, values from 0 upwards."""

    def __init__(self, chart: Chart, largest: float) -> None:
        self.spans = chart.spans
        self.step = nice_step(largest / _MAX_Y_STEPS, is_whole=chart.is_whole)
        self.num_steps = max(1, math.ceil(largest / self.step - 1e-9))
        self.start = chart.spans[0].since.timestamp() if chart.spans else 0.0
        end = chart.spans[-1].until.timestamp() if chart.spans else 1.0
        self.per_s = (_WIDTH - _LEFT - _RIGHT) / (end - self.start)

    def x(self, at: datetime) -> float:
        return round(_LEFT + (at.timestamp() - self.start) * self.per_s, 2)

    def middle(self, span: Span) -> float:
        return round((self.x(span.since) + self.x(span.until)) / 2, 2)

    def y(self, value: float) -> float:
        height = _HEIGHT - _TOP - _BOTTOM
        return round(_HEIGHT - _BOTTOM - value / (self.step * self.num_steps) * height, 2)


def nice_step(least: float, *, is_whole: bool) -> float:
    """Return the smallest of 1, 2 and 5 times a power of ten that is not below `least`."""
    if least <= 0:
        return 1
    power: float = 10.0 ** math.floor(math.log10(least))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))
    return max(1, step) if is_whole else step


def _columns(chart: Chart) -> list[tuple[float, ...]]:
    """Return the values of all series for each span."""
    rows = [[value or 0 for value in each.values] for each in chart.series]
    return list(zip(*rows, strict=True))


def _stacked(chart: Chart, frame: _Frame) -> Iterator[tuple[str, float, float, float, float]]:
    for span, values in zip(chart.spans, _columns(chart), strict=True):
        left, right = frame.x(span.since), frame.x(span.until)
        width = round((right - left) * 0.86, 2)
        below = 0.0
        for number, value in enumerate(values):
            top, bottom = frame.y(below + value), frame.y(below)
            below += value
            if value:
                yield _colour(number), left, top, width, round(bottom - top, 2)


def _line(
    frame: _Frame, spans: Sequence[Span], series: Series, colour: str
) -> Iterator[SafeString]:
    values = list(zip(spans, series.values, strict=True))
    for is_known, run in groupby(values, key=lambda point: point[1] is not None):
        if not is_known:
            continue
        points_text = [f"{frame.middle(span)},{frame.y(value or 0)}" for span, value in run]
        if len(points_text) == 1:
            x, y = points_text[0].split(",")
            yield format_html('<circle class="{}" cx="{}" cy="{}" r="2.5"/>', colour, x, y)
        else:
            yield format_html('<polyline class="{}" points="{}"/>', colour, " ".join(points_text))


def _picture(chart: Chart, frame: _Frame, shapes: SafeString, largest: float) -> SafeString:
    return format_html(
        '<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">'
        '<desc>{}</desc><g class="axis">{}{}</g><g class="shapes">{}</g><g>{}</g></svg>',
        _WIDTH,
        _HEIGHT,
        f"{chart.name}: {chart.what} At most {chart.format(largest)}.",
        chart.what,
        _y_axis(chart, frame),
        _x_axis(chart, frame),
        shapes,
        _tooltips(chart, frame),
    )


def _y_axis(chart: Chart, frame: _Frame) -> SafeString:
    marks = [frame.step * number for number in range(frame.num_steps + 1)]
    return format_html_join(
        "",
        '<line x1="{}" x2="{}" y1="{}" y2="{}"/><text class="y" x="{}" y="{}">{}</text>',
        (
            (_LEFT, _WIDTH - _RIGHT, y, y, _LEFT - 6, y + 3.5, chart.format(mark))
            for mark, y in ((mark, frame.y(mark)) for mark in marks)
        ),
    )


def _x_axis(chart: Chart, frame: _Frame) -> SafeString:
    if not chart.spans:
        return _NOTHING
    form, num_labels = _time_form(chart.spans)
    return format_html_join(
        "",
        '<text class="x" x="{}" y="{}">{}</text>',
        (
            (frame.middle(span), _HEIGHT - 8, _clock(span.since, form, chart.zone))
            for span in _labelled_spans(chart, num_labels)
        ),
    )


def _labelled_spans(chart: Chart, num_labels: int) -> list[Span]:
    """Return the spans with a label: at full hours, quarters and so on, if there are any."""
    length_s = (chart.spans[-1].until - chart.spans[0].since).total_seconds()
    step_s = next((step for step in _TIME_STEPS_S if length_s / step <= num_labels), None)
    round_ones = [
        span for span in chart.spans if step_s and _clock_s(span.since, chart.zone) % step_s == 0
    ]
    if round_ones:
        return round_ones
    stride = max(1, math.ceil(len(chart.spans) / num_labels))
    return list(chart.spans[stride // 2 :: stride])


def _clock_s(at: datetime, zone: tzinfo) -> int:
    """Return local seconds since 1970."""
    offset = at.astimezone(zone).utcoffset() or timedelta()
    return int(at.timestamp() + offset.total_seconds())


def _tooltips(chart: Chart, frame: _Frame) -> SafeString:
    return format_html_join(
        "",
        '<rect class="column" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>',
        (
            (
                frame.x(span.since),
                _TOP,
                round(frame.x(span.until) - frame.x(span.since), 2),
                _HEIGHT - _TOP - _BOTTOM,
                _words(chart, number),
            )
            for number, span in enumerate(chart.spans)
        ),
    )


def _words(chart: Chart, number: int) -> str:
    at = _clock(chart.spans[number].since, "%d %b %Y, %H:%M", chart.zone)
    texts = (
        f"{each.name}: {'not measured' if value is None else chart.format(value)}"
        for each, value in ((each, each.values[number]) for each in chart.series)
    )
    return "\n".join((at, *texts))


def _time_form(spans: Sequence[Span]) -> tuple[str, int]:
    """Return the format of times, and how many labels fit."""
    if spans[-1].until - spans[0].since <= timedelta(hours=36):
        return "%H:%M", 5
    if spans[-1].until - spans[-1].since >= timedelta(hours=23):
        return "%d %b", 5
    return "%d %b %H:%M", 3


def _clock(at: datetime, form: str, zone: tzinfo) -> str:
    return at.astimezone(zone).strftime(form)
