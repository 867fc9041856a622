"""The console's page of served models. Administrators also see why an engine fails."""

from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import path

from vinery_accounts.console.page import Page
from vinery_accounts.console.rows import RowPage
from vinery_accounts.resources.base import Conflict
from vinery_serving.catalog import registry
from vinery_serving.catalog.alias_resource import targets_text
from vinery_serving.catalog.engine_log import engine_log_text
from vinery_serving.catalog.models import ModelAlias, ServedModel
from vinery_serving.catalog.resource import MODELS


@dataclass(frozen=True, slots=True)
class Row:
    """A model as the page shows it. Users get its name and state alone."""

    name: str
    state: str
    state_text: str
    reason: str = ""
    log: str = ""
    pictures: str = ""
    waiting: str = ""
    memory: str = ""
    testable_id: int | None = None  # of a vision model

    @classmethod
    def of(cls, model: ServedModel, *, has_log: bool) -> "Row":
        seen = (model.name, model.shown_state.value, model.state_text.capitalize())
        if not has_log:
            return cls(*seen)
        return cls(
            *seen,
            model.status.last_error,
            engine_log_text(model.name),
            model.pictures_text,
            model.waiting_text,
            model.status.memory_text,
            model.pk if model.takes_pictures else None,
        )


class Models(Page):
    """`/console/models/`."""

    name = "models"
    template_name = "console/models.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        is_admin = self.access.is_superuser
        rows = [Row.of(model, has_log=is_admin) for model in registry.list_models()]
        aliases = ModelAlias.objects.all()
        has_vision = any(row.testable_id for row in rows)
        optional = {
            "Pictures": has_vision,
            "Requests that wait": is_admin,
            "Memory": is_admin,
            "Reason": is_admin,
        }
        return super().get_context_data(**kwargs) | {
            "is_admin": is_admin,
            "aliases": [(alias.name, targets_text(alias.targets)) for alias in aliases],
            "rows": rows,
            "has_vision": has_vision,
            "columns": ["Model", "State", *(name for name, is_in in optional.items() if is_in)],
        }


class SelfTest(RowPage):
    """`/console/models/<id>/self-test/`: a button of the page."""

    name = "models"
    resource = MODELS

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        return redirect("console:models")

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            MODELS.act(self.access, MODELS.action("self-test"), self.row)
        except Conflict as error:
            messages.error(request, str(error))
            return redirect("console:models")
        return self.to_list(f"Testing {self.row}. Reload the page to see the result.")


urlpatterns = [
    path("models/", Models.as_view(), name="models"),
    path("models/<int:row_id>/self-test/", SelfTest.as_view(), name="model-self-test"),
]
