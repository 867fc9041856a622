"""The console's pages that follow a log: that of a model's engine, and that of a job."""

from pathlib import Path
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path, reverse

from vinery_accounts.console.rows import RowPage
from vinery_serving.catalog.engine_log import NO_LOG, engine_log_path, log_after
from vinery_serving.catalog.job_resource import MODEL_JOBS
from vinery_serving.catalog.resource import MODELS


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


urlpatterns = [
    path("models/<int:row_id>/log/", ModelLog.as_view(), name="model-log"),
    path("models/jobs/<int:row_id>/log/", JobLog.as_view(), name="model-job-log"),
]
