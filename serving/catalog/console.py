"""The console's page of served models. Administrators also see why an engine fails."""

from dataclasses import dataclass
from typing import Any

from django.urls import path

from vinery_accounts.console.page import Page
from vinery_serving.catalog import registry
from vinery_serving.catalog.engine_log import engine_log_text
from vinery_serving.catalog.models import ServedModel


@dataclass(frozen=True, slots=True)
class Row:
    """A model as the page shows it. Users get its name and state alone."""

    name: str
    state: str
    state_text: str
    reason: str = ""
    log: str = ""

    @classmethod
    def of(cls, model: ServedModel, *, has_log: bool) -> "Row":
        seen = (model.name, model.shown_state.value, model.state_text.capitalize())
        if not has_log:
            return cls(*seen)
        return cls(*seen, model.status.last_error, engine_log_text(model.name))


class Models(Page):
    """`/console/models/`."""

    name = "models"
    template_name = "console/models.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        is_admin = self.access.is_superuser
        return super().get_context_data(**kwargs) | {
            "is_admin": is_admin,
            "rows": [Row.of(model, has_log=is_admin) for model in registry.list_models()],
        }


urlpatterns = [path("models/", Models.as_view(), name="models")]
