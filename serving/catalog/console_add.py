"""The console's page that adds a model: from a folder of the server, or from a hub."""

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import redirect
from django.urls import path

from vinery_accounts.console.page import FormPage
from vinery_serving.catalog.model_form import FolderForm
from vinery_serving.catalog.resource import MODELS
from vinery_serving.catalog.shipped import shipped_models


class AddPage(FormPage):
    """A page for administrators of the platform."""

    name = "models"

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.user.is_authenticated and not self.access.is_superuser:
            raise PermissionDenied
        return super().dispatch(request, *args, **kwargs)


class AddFolder(AddPage):
    """`/console/models/add/folder/`."""

    template_name = "console/model_add_folder.html"

    def form_of(self, data: QueryDict | None) -> FolderForm:
        return FolderForm(data, initial={"folder": self.request.GET.get("folder", "")})

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**kwargs) | {"shipped": shipped_models()}

    def save(self, form: FolderForm) -> HttpResponse:
        model = MODELS.create(self.access, form.columns)
        messages.success(self.request, f"{model} is added.")
        return redirect("console:model", model.pk)


urlpatterns = [
    path("models/add/", AddFolder.as_view(), name="model-add"),
    path("models/add/folder/", AddFolder.as_view(), name="model-add-folder"),
]
