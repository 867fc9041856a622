"""The first page: requests, tokens, errors and latencies over time, and quotas that run out."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from django.utils import timezone

from vinery_accounts.console import words
from vinery_accounts.console.charts import Chart, Series, duration
from vinery_accounts.console.limits import quota_rows
from vinery_accounts.console.page import UsagePage
from vinery_accounts.console.quarantine import num_quarantined
from vinery_accounts.resources.invitations import INVITATIONS
from vinery_accounts.usage import reports
from vinery_accounts.usage.histogram import Percentiles
from vinery_accounts.usage.reports import Figures

Parts = Mapping[str, Callable[[Figures], float | None]]


def _percentiles(column: str) -> Parts:
    def percentile(name: str) -> Callable[[Figures], float | None]:
        return lambda figures: getattr(getattr(figures, column), name, None)

    return {name: percentile(name) for name in ("p50", "p95", "p99")}


# The name of each chart, its text for screen readers, and the value of each colour.
_COUNTS: Final[tuple[tuple[str, str, Parts], ...]] = (
    (
        "Requests",
        "Requests that were answered or failed, over time.",
        {
            "answered": lambda each: each.num_requests - each.num_errors,
            "failed": lambda each: each.num_errors,
        },
    ),
    (
        "Tokens",
        "Input tokens, cached or not, and output tokens over time.",
        {
            "input": lambda each: each.num_prompt_tokens - each.num_cached_tokens,
            "cached input": lambda each: each.num_cached_tokens,
            "output": lambda each: each.num_output_tokens,
        },
    ),
)
_DURATIONS: Final[tuple[tuple[str, str, Parts], ...]] = (
    (
        "Time to the first token",
        "Percentiles of the time until the first token of a response.",
        _percentiles("first_token_ms"),
    ),
    (
        "Time to the last token",
        "Percentiles of the time until a response was complete.",
        _percentiles("total_ms"),
    ),
)


class Overview(UsagePage):
    """`/console/`."""

    name = "overview"
    template_name = "console/overview.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        question = self.question
        figures = reports.totals(question).figures
        points = reports.series(question)
        charts = [
            Chart(
                name,
                what,
                points,
                [
                    Series(part, [value(point.figures) for point in points])
                    for part, value in parts.items()
                ],
                self.period.zone,
                is_of_durations=kind is _DURATIONS,
            )
            for kind in (_COUNTS, _DURATIONS)
            for name, what, parts in kind
        ]
        return super().get_context_data(**kwargs) | {
            "tiles": tiles(figures),
            "charts": charts,
            "quotas": quota_rows(self.access, timezone.now()),
            "invitations": INVITATIONS.rows(self.access).filter(username=self.user.username),
            "num_quarantined": num_quarantined(self.access),
            "is_empty": not figures.num_requests,
        }


def tiles(figures: Figures) -> list[tuple[str, str, str, str]]:
    """Return the totals of a period: an id for tests and the style sheet, a name, a number, and
    more about it."""
    num_requests, num_errors = figures.num_requests, figures.num_errors
    share = f"{100 * num_errors / num_requests:.3g} % of requests" if num_requests else ""
    cached = f"{figures.num_cached_tokens:,} of them from the cache"
    return [
        ("requests", "Requests", f"{num_requests:,}", ""),
        ("errors", "Errors", f"{num_errors:,}", share),
        ("input", "Input tokens", f"{figures.num_prompt_tokens:,}", cached),
        ("output", "Output tokens", f"{figures.num_output_tokens:,}", ""),
        ("first-token", "First token, p50", *_latency(figures.first_token_ms)),
        ("total", "Whole response, p50", *_latency(figures.total_ms)),
        *([("energy", "Energy, attributed", *_energy(figures))] if figures.energy_mj else []),
    ]


def _latency(found: Percentiles | None) -> tuple[str, str]:
    if found is None:
        return "none", "nothing measured"
    return duration(found.p50), f"p95 {duration(found.p95)}, p99 {duration(found.p99)}"


def _energy(figures: Figures) -> tuple[str, str]:
    """Return the energy of requests, without that of an idle machine."""
    per_request = f"{words.energy(figures.energy_mj / figures.num_requests)} a request"
    if figures.num_tokens:
        each = words.energy(1000 * figures.energy_mj / figures.num_tokens)
        per_request += f", {each} for 1,000 tokens"
    return words.energy(figures.energy_mj), per_request
