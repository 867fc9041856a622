"""What the console's pages that add something of models share."""

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect

from vinery_accounts.console.page import Page
from vinery_serving.catalog.jobs import ModelJob
from vinery_serving.catalog.models import ServedModel


class AdministratorPage(Page):
    """A page for administrators of the platform."""

    name = "models"

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Raises `PermissionDenied` for others."""
        if request.user.is_authenticated and not self.access.is_superuser:
            raise PermissionDenied
        return super().dispatch(request, *args, **kwargs)


class AddPage(AdministratorPage):
    """A page that adds a model, in one `way` of several."""

    way = ""

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**kwargs) | {"way": self.way}

    def to_model(self, model: ServedModel) -> HttpResponse:
        messages.success(self.request, f"{model} is added.")
        return redirect("console:model", model.pk)

    def to_job(self, job: ModelJob, what: str) -> HttpResponse:
        """`what`: Pulling or Converting."""
        messages.success(self.request, f"{what} {job.model}. This page shows the progress.")
        return redirect("console:model", job.model_id)
