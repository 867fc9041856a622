"""The console's pages of one model for administrators, as tabs: state with jobs and buttons, log,
speed with the search for faster engine options, settings, and history."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone

from vinery_accounts.console.charts import Chart, Series
from vinery_accounts.console.page import FormPage, LivePage, at
from vinery_accounts.console.rows import (
    ButtonPage,
    ChangeRow,
    ConfirmPage,
    Question,
    RowPage,
    page_of,
)
from vinery_accounts.resources.base import Conflict
from vinery_accounts.resources.forms import ParametersForm
from vinery_accounts.resources.limits import prices_of
from vinery_serving.core.tasks import Task
from vinery_serving.models.engine_work import NO_LOG, engine_log_path, log_after
from vinery_serving.models.job_requests import checkpoint_of, has_changed_since
from vinery_serving.models.job_resource import MODEL_EVENTS, MODEL_JOBS, bytes_text
from vinery_serving.models.job_rows import JobKind, JobState, ModelJob, SpeedResult
from vinery_serving.models.models import ServedModel
from vinery_serving.models.resource import MODELS
from vinery_serving.pages.model_facts import (
    JobView,
    actions_of,
    aliases_of,
    body_of,
    curl_of,
    engine_facts,
    is_better,
    jobs_of,
    source_of,
    summary,
    trial_rows,
)
from vinery_serving.pages.model_form import ChangedModelForm

_MODEL: Final = "models/<int:row_id>/"
_JOB: Final = "models/jobs/<int:row_id>/"
_NUM_SHOWN: Final = 20
_NUM_JOBS: Final = 10
_MS: Final = 1000
_MEASURING: Final = (JobKind.BENCH, JobKind.TUNE)


class ModelTab(RowPage):
    """A page of a model. `tab` is the name of its URL."""

    resource = MODELS
    tab: ClassVar[str] = "model"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        (row,) = MODELS.load([self.resource.rows(self.access).get(pk=self.row.pk)])
        tabs = [(title, reverse(f"console:{name}", args=[row.pk]), name) for name, title in _TABS]
        return context | {"row": row, "tab": self.tab, "tabs": tabs}


_TABS: Final = (
    ("model", "State"),
    ("model-log", "Log"),
    ("model-speed", "Speed"),
    ("model-settings", "Settings"),
    ("model-history", "History"),
)


# -- Speed


@dataclass(frozen=True, slots=True)
class _Moment:
    since: datetime
    until: datetime


@at(f"{_MODEL}speed/", "model-speed")
class ModelSpeed(ModelTab, LivePage):
    template_name = "console/model_speed.html"
    tab = "model-speed"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        row = context["row"]
        return context | {
            **speed_of(row),
            "may_measure": "bench" in actions_of(row),
            "may_tune": row.folder and Task(row.task).is_generation,
            "jobs": [each for each in jobs_of(row, _NUM_JOBS) if each.job.kind in _MEASURING],
        }


def speed_of(model: ServedModel) -> dict[str, Any]:
    """Return what the page shows: charts from two measurements on, and rows of the newest."""
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
    minute = timedelta(minutes=1)
    moments = [_Moment(each.measured_at, each.measured_at + minute) for each in results]
    what = f"{title} of the last {len(results)} measurements, by number of streams."
    return Chart(
        title,
        what,
        moments,
        series,
        timezone.get_current_timezone(),
        is_of_durations=is_of_durations,
        is_of_lines=True,
    )


def _row(point: dict[str, Any]) -> dict[str, str]:
    return {
        "streams": str(point["streams"]),
        "output": f"{point['output_tokens_per_s']:.1f}",
        "prompt": f"{point['prompt_tokens_per_s']:.0f}",
        "first_token": f"{point['first_token_s'] * _MS:.0f} ms",
        "memory": bytes_text(point["memory_bytes"]),
    }


# -- Tuning


@at(f"{_MODEL}tune/", "model-tune")
class Tune(ModelTab, LivePage, FormPage):
    """The form, the running search, the trials of the last search, and a button that sets the best
    options."""

    template_name = "console/model_tune.html"
    tab = "model-speed"

    def form_of(self, data: QueryDict | None) -> ParametersForm:
        serializer = MODELS.action("tune").serializer
        return ParametersForm(serializer, serializer().fields, data)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        tunings = ModelJob.objects.filter(model=self.row, kind=JobKind.TUNE)
        newest = tunings.select_related("model").first()
        done = tunings.filter(state=JobState.DONE).first()
        return super().get_context_data(**kwargs) | {
            "search": _view_of(newest),
            **_tuning_facts(self.row, done),
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
    is_shown = job is not None and job.state not in (JobState.DONE, JobState.CANCELLED)
    return JobView(job) if job is not None and is_shown else None


def _tuning_facts(model: ServedModel, done: ModelJob | None) -> dict[str, Any]:
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


# -- State, settings and history

_DONE: Final = {
    "load": "Loading {row}.",
    "unload": "Unloading {row}. Clients get an error until it is loaded.",
    "retry": "Loading {row} again.",
    "self-test": "Testing {row}. A failure appears here within a minute.",
    "bench": "Measuring {row}. The result appears here within minutes.",
    "apply-tuning": "{row} has the options of its tuning. Its engine starts again with them.",
}


@at(_MODEL, "model")
class ModelPage(ModelTab, LivePage):
    template_name = "console/model.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        row = context["row"]
        attempts, cache_grows = row.status.attempts_text, _cache_grows(row)
        engine = body_of(row)["engine"]
        return context | {
            "actions": [name for name in actions_of(row) if name != "bench"],  # on the speed tab
            "facts": list(engine_facts(engine, attempts, cache_grows=cache_grows)),
            "price": prices_of([row.name]).get(row.name),
            "source": source_of(row),
            "aliases": aliases_of(row),
            "jobs": jobs_of(row, _NUM_JOBS),
            "checkpoint": checkpoint_of(row),
            "curl": curl_of(row, self.base_url()),
        }


@at(f"{_MODEL}settings/", "model-settings")
class ModelSettings(ModelTab, ChangeRow):
    template_name = "console/model_settings.html"
    tab = "model-settings"
    form_class = ChangedModelForm
    done = "{row} is changed."

    def row_address(self, row: ServedModel) -> str:
        return reverse("console:model-settings", args=[row.pk])

    def stored(self, row: ServedModel) -> HttpResponse:
        response = super().stored(row)
        for warning in getattr(row, "warnings", ()):
            messages.warning(self.request, warning)
        return response


@at(f"{_MODEL}history/", "model-history")
class ModelHistory(ModelTab, LivePage):
    template_name = "console/model_history.html"
    tab = "model-history"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        events = MODEL_EVENTS.rows(self.access).filter(model=self.row)
        return super().get_context_data(**kwargs) | page_of(events, self.request)


def _cache_grows(model: ServedModel) -> bool | None:
    """Whether the KV cache has no fixed size; None: there is no cache."""
    return not model.options.get("cache_size_gb") if Task(model.task).is_generation else None


@at(_MODEL, "model", *_DONE)
class ActOnModel(ButtonPage):
    """Buttons of the list (`?from=list`), of the model, and of its tuning (`?from=tune`)."""

    resource = MODELS

    def done_text(self) -> str:
        return _DONE[self.does].format(row=self.row)

    def back_address(self) -> str:
        if self.request.GET.get("from") == "list":
            return reverse("console:models")
        page = "model-tune" if self.request.GET.get("from") == "tune" else "model"
        page = "model-speed" if self.does == "bench" else page
        return reverse(f"console:{page}", args=[self.row.pk])


@at(_MODEL, "model", "remove")
class RemoveModel(ConfirmPage):
    resource = MODELS
    questions = {
        "remove": Question(
            "Remove {row}?",
            "Its engine ends, with its running requests, and its history is deleted. The files in "
            "its folder stay.",
            "{row} is no longer served.",
        )
    }


@at(_JOB, "model-job", "pause", "resume")
class ActOnJob(ButtonPage):
    resource = MODEL_JOBS

    def back_address(self) -> str:
        return reverse("console:model", args=[self.row.model_id])


@at(_JOB, "model-job", "cancel")
class CancelJob(ConfirmPage):
    resource = MODEL_JOBS
    questions = {
        "cancel": Question(
            "Cancel the {row}?",
            "What it has made so far is deleted. To go on later, pause it.",
            "The {row} is being cancelled.",
            "Cancel the job",
        )
    }

    def back_address(self) -> str:
        return reverse("console:model", args=[self.row.model_id])


# -- Pages that follow the log of an engine or of a job


class LogPage(RowPage):
    """A page with a log. A script asks for newer lines with `?after=POSITION`."""

    def log(self) -> tuple[Path, dict[str, str]]:
        """Return the path of the log, and the texts of the page."""
        raise NotImplementedError

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        after = request.GET.get("after")
        if after is None:
            return super().get(request, *args, **kwargs)
        lines, position = log_after(self.log()[0], after)
        return JsonResponse({"lines": lines, "position": position})

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        path, texts = self.log()
        lines, position = log_after(path, "")
        about = {"lines": "".join(f"{line}\n" for line in lines), "position": position}
        return super().get_context_data(**kwargs) | about | texts


@at(f"{_MODEL}log/", "model-log")
class ModelLog(ModelTab, LogPage):
    template_name = "console/model_log.html"
    tab = "model-log"

    def log(self) -> tuple[Path, dict[str, str]]:
        return engine_log_path(self.row.name), {
            "heading": str(self.row),
            "no_log": NO_LOG.format(model=self.row.name),
            "about": "The engine's lines on this host, in UTC.",
            "command": f"vinery model logs --follow {self.row}",
        }


@at(f"{_JOB}log/", "model-job-log")
class JobLog(LogPage):
    template_name = "console/job_log.html"
    resource = MODEL_JOBS

    def log(self) -> tuple[Path, dict[str, str]]:
        return self.row.log_path, {
            "heading": f"Log of job {self.row.pk}: {self.row.kind} {self.row.model}",
            "no_log": "The job has logged nothing on this host.",
            "about": "The job's output on this host.",
            "command": f"vinery job log {self.row.pk}",
            "back": reverse("console:model", args=[self.row.model_id]),
            "back_name": str(self.row.model),
        }
