"""The console's page of one model for administrators: its state and history, what it does now, its
jobs, its settings, buttons that act on it, and the pages that follow a log."""

from pathlib import Path
from typing import Any, Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse, QueryDict
from django.shortcuts import redirect
from django.urls import path, reverse

from vinery_accounts.console.page import FormPage, LivePage
from vinery_accounts.console.rows import ButtonPage, ConfirmPage, Question, RowPage, page_of
from vinery_serving.core.tasks import Task
from vinery_serving.models.engine_work import NO_LOG, engine_log_path, engine_log_text, log_after
from vinery_serving.models.job_requests import checkpoint_of
from vinery_serving.models.job_resource import MODEL_EVENTS, MODEL_JOBS
from vinery_serving.models.models import ServedModel
from vinery_serving.models.resource import MODELS
from vinery_serving.pages.console_speed import speed_of
from vinery_serving.pages.model_facts import (
    actions_of,
    aliases_of,
    body_of,
    curl_of,
    engine_facts,
    jobs_of,
    source_of,
)
from vinery_serving.pages.model_form import ChangedModelForm

_NUM_JOBS: Final = 10
_DONE: Final = {
    "load": "Loading {row}.",
    "unload": "Unloading {row}. Clients get an error until it is loaded.",
    "retry": "Loading {row} again.",
    "self-test": "Testing {row}. A failure appears here within a minute.",
    "bench": "Measuring {row}. The result appears here within minutes.",
    "apply-tuning": "{row} has the options of its tuning. Its engine starts again with them.",
}


class ModelPage(RowPage, LivePage, FormPage):
    """`/console/models/<id>/`."""

    name = "models"
    template_name = "console/model.html"
    resource = MODELS

    def form_of(self, data: QueryDict | None) -> ChangedModelForm:
        return ChangedModelForm(self.row, data)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        (row,) = MODELS.load([self.resource.rows(self.access).get(pk=self.row.pk)])
        body = body_of(row)
        events = MODEL_EVENTS.rows(self.access).filter(model=row)
        return context | {
            **{f"events_{name}": value for name, value in page_of(events, self.request).items()},
            "row": row,
            "actions": actions_of(row),
            "facts": list(
                engine_facts(
                    body["engine"],
                    row.status.attempts_text,
                    cache_grows=_cache_grows(row),
                )
            ),
            "source": source_of(row),
            "aliases": aliases_of(row),
            "jobs": jobs_of(row, _NUM_JOBS),
            **speed_of(row),
            "may_tune": row.folder and Task(row.task).is_generation,
            "checkpoint": checkpoint_of(row),
            "log": engine_log_text(row.name),
            "curl": curl_of(row, self.base_url()),
        }

    def save(self, form: ChangedModelForm) -> HttpResponse:
        changed = MODELS.change(self.access, self.row, form.changed_columns)
        messages.success(self.request, f"{changed} is changed.")
        for warning in getattr(changed, "warnings", ()):
            messages.warning(self.request, warning)
        return redirect("console:model", changed.pk)


def _cache_grows(model: ServedModel) -> bool | None:
    """Whether its KV cache has no fixed size; None: it has no cache."""
    return not model.options.get("cache_size_gb") if Task(model.task).is_generation else None


class ActOnModel(ButtonPage):
    """`/console/models/<id>/load/` and so on: buttons of the list (`?from=list`), of the page, and
    of the page that tunes (`?from=tune`)."""

    name = "models"
    resource = MODELS

    def done_text(self) -> str:
        return _DONE[self.does].format(row=self.row)

    def back_address(self) -> str:
        if self.request.GET.get("from") == "list":
            return reverse("console:models")
        page = "model-tune" if self.request.GET.get("from") == "tune" else "model"
        return reverse(f"console:{page}", args=[self.row.pk])


class RemoveModel(ConfirmPage):
    """`/console/models/<id>/remove/`."""

    name = "models"
    resource = MODELS
    does = "remove"
    questions = {
        "remove": Question(
            "Remove {row}?",
            "Its engine ends, with its running requests, and its history is deleted. The files in "
            "its folder stay.",
            "Remove",
            "{row} is no longer served.",
        )
    }


class ActOnJob(ButtonPage):
    """`/console/models/jobs/<id>/pause/` and `resume/`: buttons of the model's page."""

    name = "models"
    resource = MODEL_JOBS

    def back_address(self) -> str:
        return reverse("console:model", args=[self.row.model_id])


class CancelJob(ConfirmPage):
    """`/console/models/jobs/<id>/cancel/`."""

    name = "models"
    resource = MODEL_JOBS
    does = "cancel"
    questions = {
        "cancel": Question(
            "Cancel the {row}?",
            "What it has made so far is deleted. To go on later, pause it.",
            "Cancel the job",
            "The {row} is being cancelled.",
        )
    }

    def back_address(self) -> str:
        return reverse("console:model", args=[self.row.model_id])


# -- Pages that follow a log: that of a model's engine, and that of a job


class LogPage(RowPage):
    """A page with a log. A script asks it for the lines after those that it has, with
    `?after=POSITION`."""

    name = "models"
    template_name = "console/model_log.html"

    def log_path(self) -> Path:
        raise NotImplementedError

    def words(self) -> dict[str, str]:
        """Return `heading`, `no_log`, `about`, `command`, and the address and name of `back`."""
        raise NotImplementedError

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        after = request.GET.get("after")
        if after is None:
            return super().get(request, *args, **kwargs)
        lines, position = log_after(self.log_path(), after)
        return JsonResponse({"lines": lines, "position": position})

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        lines, position = log_after(self.log_path(), "")
        return super().get_context_data(**kwargs) | {
            "lines": "".join(f"{line}\n" for line in lines),
            "position": position,
            **self.words(),
        }


class ModelLog(LogPage):
    """`/console/models/<id>/log/`."""

    resource = MODELS

    def log_path(self) -> Path:
        return engine_log_path(self.row.name)

    def words(self) -> dict[str, str]:
        return {
            "heading": f"Log of {self.row}",
            "no_log": NO_LOG.format(model=self.row.name),
            "about": "The engine's lines on this host, in UTC.",
            "command": f"vinery model logs --follow {self.row}",
            "back": reverse("console:model", args=[self.row.pk]),
            "back_name": str(self.row),
        }


class JobLog(LogPage):
    """`/console/models/jobs/<id>/log/`."""

    resource = MODEL_JOBS

    def log_path(self) -> Path:
        path: Path = self.row.log_path
        return path

    def words(self) -> dict[str, str]:
        return {
            "heading": f"Log of job {self.row.pk}: {self.row.kind} {self.row.model}",
            "no_log": "The job has logged nothing on this host.",
            "about": "The job's output on this host.",
            "command": f"vinery job log {self.row.pk}",
            "back": reverse("console:model", args=[self.row.model_id]),
            "back_name": str(self.row.model),
        }


_MODEL: Final = "models/<int:row_id>"
_JOB: Final = "models/jobs/<int:row_id>"

urlpatterns = [
    path(f"{_MODEL}/", ModelPage.as_view(), name="model"),
    *(
        path(f"{_MODEL}/{does}/", ActOnModel.as_view(does=does), name=f"model-{does}")
        for does in _DONE
    ),
    path(f"{_MODEL}/remove/", RemoveModel.as_view(), name="model-remove"),
    *(
        path(f"{_JOB}/{does}/", ActOnJob.as_view(does=does), name=f"model-job-{does}")
        for does in ("pause", "resume")
    ),
    path(f"{_JOB}/cancel/", CancelJob.as_view(), name="model-job-cancel"),
    path("models/<int:row_id>/log/", ModelLog.as_view(), name="model-log"),
    path("models/jobs/<int:row_id>/log/", JobLog.as_view(), name="model-job-log"),
]
