"""The speed card on a model's page: charts of earlier measurements, and the newest in a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from vinery_accounts.console.charts import Chart, Series
from vinery_serving.catalog.job_resource import bytes_text
from vinery_serving.catalog.models import ServedModel
from vinery_serving.catalog.speed import SpeedResult

_NUM_SHOWN: Final = 20
_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class _Moment:
    """One measurement as a column of a chart."""

    since: datetime
    until: datetime


def speed_of(model: ServedModel) -> dict[str, Any]:
    """Return what the page shows: charts from two measurements on, and rows of the newest one."""
    results = list(SpeedResult.objects.filter(model=model)[:_NUM_SHOWN])
    if not results:
        return {"speed": None, "speed_charts": [], "speed_rows": []}
    return {
        "speed": results[0],
        "speed_charts": _charts(results[::-1]) if len(results) > 1 else [],
        "speed_rows": [_row(point) for point in results[0].points],
    }


def _charts(results: Sequence[SpeedResult]) -> list[Chart]:
    """`results`: the oldest first."""
    return [
        _chart(results, "Output tokens per second", "output_tokens_per_s"),
        _chart(results, "Prompt tokens per second", "prompt_tokens_per_s"),
        _chart(results, "First token", "first_token_s", is_of_durations=True),
    ]


def _chart(
    results: Sequence[SpeedResult], title: str, value: str, *, is_of_durations: bool = False
) -> Chart:
    streams = sorted({point["streams"] for result in results for point in result.points})
    factor = _MS if is_of_durations else 1
    series = [
        Series(
            f"{num} streams" if num > 1 else "1 stream",
            [
                None if (each := result.value(num, value)) is None else each * factor
                for result in results
            ],
        )
        for num in streams
    ]
    moments = [_moment(result) for result in results]
    what = f"{title} of the last {len(results)} measurements, by number of streams."
    return Chart(
        title, what, moments, series, UTC, is_of_durations=is_of_durations, is_of_lines=True
    )


def _moment(result: SpeedResult) -> _Moment:
    return _Moment(result.measured_at, result.measured_at + timedelta(minutes=1))


def _row(point: dict[str, Any]) -> dict[str, str]:
    return {
        "streams": str(point["streams"]),
        "output": f"{point['output_tokens_per_s']:.1f}",
        "prompt": f"{point['prompt_tokens_per_s']:.0f}",
        "first_token": f"{point['first_token_s'] * _MS:.0f} ms",
        "memory": bytes_text(point["memory_bytes"]),
    }
