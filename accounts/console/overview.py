"""The first page: requests, tokens, errors and latencies over time, and quotas that run out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from accounts.console import charts, words
from accounts.console.charts import Chart, Drawing, Series
from accounts.console.page import UsagePage, spans_of
from accounts.console.quotas import quota_rows
from accounts.usage import reports
from accounts.usage.histogram import Percentiles
from accounts.usage.reports import Figures, Point


@dataclass(frozen=True, slots=True)
class Tile:
    """One large number. Tests and the style sheet use `id`."""

    id: str
    name: str
    number: str
    more: str = ""


class Overview(UsagePage):
    """`/console/`."""

    name = "overview"
    template_name = "console/overview.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the totals, and charts over time."""
        question = self.question
        figures = reports.totals(question).figures
        return super().get_context_data(**kwargs) | {
            "tiles": tiles(figures),
            "drawings": self._drawings(reports.series(question)),
            "quotas": quota_rows(self.access, timezone.now()),
            "is_empty": not figures.num_requests,
        }

    def _drawings(self, points: tuple[Point, ...]) -> list[Drawing]:
        def drawing(
            name: str, what: str, parts: dict[str, Callable[[Figures], float | None]]
        ) -> Drawing:
            is_of_time = name.startswith("Time")
            series = [
                Series(part, [value(point.figures) for point in points])
                for part, value in parts.items()
            ]
            chart = Chart(
                name=name,
                what=what,
                spans=spans_of(points),
                series=series,
                zone=self.period.zone,
                format=charts.duration if is_of_time else charts.short,
                is_whole=not is_of_time,
            )
            draw = charts.lines if is_of_time else charts.bars
            return Drawing(name, tuple(parts), draw(chart))

        return [
            drawing(
                "Requests",
                "Requests that were answered or failed, over time.",
                {
                    "answered": lambda each: each.num_requests - each.num_errors,
                    "failed": lambda each: each.num_errors,
                },
            ),
            drawing(
                "Tokens",
                "Input tokens, cached or not, and output tokens over time.",
                {
                    "input": lambda each: each.num_prompt_tokens - each.num_cached_tokens,
                    "cached input": lambda each: each.num_cached_tokens,
                    "output": lambda each: each.num_output_tokens,
                },
            ),
            drawing(
                "Time to the first token",
                "Percentiles of the time until the first token of a response.",
                _percentiles(lambda each: each.first_token_ms),
            ),
            drawing(
                "Time to the last token",
                "Percentiles of the time until a response was complete.",
                _percentiles(lambda each: each.total_ms),
            ),
        ]


def tiles(figures: Figures) -> list[Tile]:
    """Return the totals of a period."""
    num_requests, num_errors = figures.num_requests, figures.num_errors
    share = f"{100 * num_errors / num_requests:.3g} % of requests" if num_requests else ""
    cached = f"{figures.num_cached_tokens:,} of them from the cache"
    energy = [_energy(figures)] if figures.energy_mj else []
    return [
        Tile("requests", "Requests", f"{num_requests:,}"),
        Tile("errors", "Errors", f"{num_errors:,}", share),
        Tile("input", "Input tokens", f"{figures.num_prompt_tokens:,}", cached),
        Tile("output", "Output tokens", f"{figures.num_output_tokens:,}"),
        _latency("first-token", "First token", figures.first_token_ms),
        _latency("total", "Whole response", figures.total_ms),
        *energy,
    ]


def _energy(figures: Figures) -> Tile:
    """Return the energy of requests, without that of an idle machine."""
    per_request = f"{words.energy(figures.energy_mj / figures.num_requests)} a request"
    if figures.num_tokens:
        each = words.energy(1000 * figures.energy_mj / figures.num_tokens)
        per_request += f", {each} for 1,000 tokens"
    return Tile("energy", "Energy, attributed", words.energy(figures.energy_mj), per_request)


def _latency(id_: str, name: str, found: Percentiles | None) -> Tile:
    if found is None:
        return Tile(id_, f"{name}, p50", "none", "nothing measured")
    return Tile(
        id_,
        f"{name}, p50",
        charts.duration(found.p50),
        f"p95 {charts.duration(found.p95)}, p99 {charts.duration(found.p99)}",
    )


def _percentiles(
    of: Callable[[Figures], Percentiles | None],
) -> dict[str, Callable[[Figures], float | None]]:
    def percentile(name: str) -> Callable[[Figures], float | None]:
        return lambda figures: None if (found := of(figures)) is None else getattr(found, name)

    return {"p50": percentile("p50"), "p95": percentile("p95"), "p99": percentile("p99")}
