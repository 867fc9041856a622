"""The console's page of served models. Users see names and states; administrators see what the
engines do, load and unload models, and find the page of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.urls import path

from vinery_accounts.console.page import LivePage
from vinery_serving.models import registry
from vinery_serving.models.aliases import ModelAlias
from vinery_serving.models.job_resource import bytes_text, progress_text
from vinery_serving.models.models import ServedModel
from vinery_serving.models.resource import MODELS, targets_text
from vinery_serving.pages import console_add, console_aliases, console_model, console_speed
from vinery_serving.pages.model_facts import actions_of, body_of

_OF_USERS: Final = ("Model", "Task", "State")
_OF_ADMINISTRATORS: Final = (*_OF_USERS, "Device", "#Running", "#Waiting", "#Memory")
# Of the page of a model, too, which has more of them.
_ACTIONS: Final = frozenset({"load", "unload", "retry"})


@dataclass(frozen=True, slots=True)
class Row:
    """A model as the page shows it to administrators; users see its name, task and state alone."""

    model: ServedModel
    engine: Mapping[str, Any]

    @property
    def num_running(self) -> int | None:
        return self.engine.get("num_running")

    @property
    def num_waiting(self) -> int | None:
        return self.engine.get("num_waiting")

    @property
    def memory(self) -> str:
        num_bytes = self.engine.get("memory_bytes")
        return bytes_text(num_bytes) if num_bytes else ""

    @property
    def progress(self) -> str:
        """What the job does that makes the folder; empty: there is none."""
        job = None if self.model.folder else self.model.folder_job
        return progress_text(job) if job else ""

    @property
    def actions(self) -> list[str]:
        return [name for name in actions_of(self.model) if name in _ACTIONS]


class Models(LivePage):
    """`/console/models/`."""

    name = "models"
    template_name = "console/models.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        is_admin = self.access.is_superuser
        models = registry.models_seen_by(self.access)
        names = {model.name for model in models}
        aliases = ModelAlias.objects.all()
        return super().get_context_data(**kwargs) | {
            "is_admin": is_admin,
            "aliases": [
                (alias, targets_text(seen))
                for alias in aliases
                if (seen := {name: alias.targets[name] for name in alias.targets if name in names})
            ],
            "rows": _rows(models) if is_admin else [Row(model, {}) for model in models],
            "columns": (*_OF_ADMINISTRATORS, "Reason", "") if is_admin else _OF_USERS,
        }


def _rows(models: list[ServedModel]) -> list[Row]:
    return [Row(model, body_of(model)["engine"]) for model in MODELS.load(models)]


urlpatterns = [
    path("models/", Models.as_view(), name="models"),
    *console_add.urlpatterns,
    *console_aliases.urlpatterns,
    *console_model.urlpatterns,
    *console_speed.urlpatterns,
]
