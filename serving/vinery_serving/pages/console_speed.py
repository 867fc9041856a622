"""The speed of a model in the console: the card on its page, with charts of earlier measurements,
and the page that looks for faster engine options."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.contrib import messages
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import path

from vinery_accounts.console.charts import Chart, Series
from vinery_accounts.console.page import FormPage, LivePage
from vinery_accounts.console.rows import RowPage
from vinery_accounts.resources.base import Conflict
from vinery_accounts.resources.forms import ParametersForm
from vinery_serving.models.job_requests import has_changed_since
from vinery_serving.models.job_resource import bytes_text
from vinery_serving.models.job_rows import JobKind, JobState, ModelJob, SpeedResult
from vinery_serving.models.models import ServedModel
from vinery_serving.models.resource import MODELS
from vinery_serving.pages.model_facts import JobView, is_better, job_view, summary, trial_rows

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


# -- Tuning


class Tune(RowPage, LivePage, FormPage):
    """`/console/models/<id>/tune/`: the form, the search that runs, what each trial of the last one
    gave, and a button that sets the best."""

    name = "models"
    template_name = "console/model_tune.html"
    resource = MODELS

    def form_of(self, data: QueryDict | None) -> ParametersForm:
        serializer = MODELS.action("tune").serializer
        return ParametersForm(serializer, serializer().fields, data)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        tunings = ModelJob.objects.filter(model=self.row, kind=JobKind.TUNE)
        newest = tunings.select_related("model").first()
        done = tunings.filter(state=JobState.DONE).first()
        return super().get_context_data(**kwargs) | {
            "search": _view_of(newest),
            **_facts(self.row, done),
        }

    def save(self, form: ParametersForm) -> HttpResponse:
        try:
            MODELS.act(self.access, MODELS.action("tune"), self.row, **form.values)
        except Conflict as error:
            form.add_error(None, str(error))
            return self.render_to_response(self.get_context_data(form=form))
        messages.success(self.request, "The search begins. This page shows what it does.")
        return redirect("console:model-tune", self.row.pk)


def _view_of(job: ModelJob | None) -> JobView | None:
    """Return a search that has not ended, or that has failed."""
    is_shown = job is not None and job.state not in (JobState.DONE, JobState.CANCELLED)
    return job_view(job) if job is not None and is_shown else None


def _facts(model: ServedModel, done: ModelJob | None) -> dict[str, Any]:
    """Return what the last search gave, and whether its best options can be set."""
    if done is None:
        return {"trials": []}
    result = done.result
    return {
        "tuned_at": done.ended_at,
        "trials": list(trial_rows(result)),
        "summary": summary(result),
        "is_better": is_better(result),
        "is_set": model.options == result["best"],
        "has_changed": has_changed_since(model, done),
    }


urlpatterns = [path("models/<int:row_id>/tune/", Tune.as_view(), name="model-tune")]
