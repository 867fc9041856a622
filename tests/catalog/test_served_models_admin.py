"""The admin's form of a served model, states, and the permission to load one."""

from typing import Any

from django.contrib.auth.models import Permission
from django.test import Client

from tests.catalog.conftest import TINY_CHAT as FOLDER
from tests.tables import table
from vinery_accounts.models import User
from vinery_serving.models.engine_status import EngineState, EngineStatus
from vinery_serving.models.models import ServedModel

TINY_CHAT = str(FOLDER)
MODELS = "/admin/serving/servedmodel/"
ADD = f"{MODELS}add/"


def address(model: ServedModel, page: str = "change/") -> str:
    return f"{MODELS}{model.pk}/{page}"


def errors_of(client: Client, **values: str) -> dict[str, Any]:
    """The form's errors by field. Empty when the model was added."""
    form = {"name": "chat", "folder": TINY_CHAT, "device": "CPU", "options": "{}"} | values
    response = client.post(ADD, form)
    return {} if response.status_code == 302 else dict(response.context["adminform"].form.errors)


def test_a_missing_folder_is_refused_once_and_with_wrong_options_together(root: Client) -> None:
    errors = errors_of(root, folder="/nowhere", options="[]")

    assert errors == {
        "folder": ["There is no folder /nowhere."],
        "options": ['Write a JSON object, such as {"max_running": 16}.'],
    }

    assert errors_of(root, folder="") == {"folder": ["This field is required."]}
    assert errors_of(root, options="{max_running: 3}") == {"options": ["Enter a valid JSON."]}
    assert errors_of(root, options="") == {}
    assert ServedModel.objects.get().options == {}


@table(
    "is_loaded, state, shown",
    [
        *((True, EngineState.READY, "Ready"), (True, EngineState.FAILED, "Failed")),
        *((True, EngineState.UNLOADED, "Waiting to load"), (True, None, "Waiting to load")),
        *((False, EngineState.READY, "Unloading"), (False, None, "Unloaded")),
    ],
)
def test_a_model_has_the_state_that_is_asked_for_until_the_node_reports(
    db: None, is_loaded: bool, state: EngineState | None, shown: str
) -> None:
    model = ServedModel(name="chat", folder=TINY_CHAT, is_loaded=is_loaded)
    if state is not None:
        model.engine = EngineStatus(model=model, state=state)
    assert model.shown_state.label == shown


def test_a_user_with_view_permission_cannot_load(client: Client, db: None) -> None:
    model = ServedModel.objects.create(name="chat", folder=TINY_CHAT, is_loaded=False)
    staff = User.objects.create_user("staff", is_staff=True)
    staff.user_permissions.set(Permission.objects.filter(codename="view_servedmodel"))
    client.force_login(staff)
    load = {"action": "load", "_selected_action": [model.pk]}

    client.post(MODELS, load)
    model.refresh_from_db()
    assert not model.is_loaded
    assert client.get(address(model)).status_code == 200

    staff.user_permissions.add(Permission.objects.get(codename="change_servedmodel"))
    client.post(MODELS, load)
    model.refresh_from_db()
    assert model.is_loaded
