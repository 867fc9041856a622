"""The admin's form of a served model, and the permission to load one."""

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from tests.catalog.conftest import TINY_CHAT as FOLDER
from tests.catalog.conftest import text_of
from tests.tables import table
from vinery_accounts.models import User
from vinery_serving.models import devices
from vinery_serving.models.devices import Device
from vinery_serving.models.engine_status import EngineState, EngineStatus
from vinery_serving.models.models import ServedModel

TINY_CHAT = str(FOLDER)
MODELS = "/admin/serving/servedmodel/"
ADD = f"{MODELS}add/"


def address(model: ServedModel, page: str = "change/") -> str:
    return f"{MODELS}{model.pk}/{page}"


def served(state: EngineState | None = None, **status: Any) -> ServedModel:
    """A model, with the status of its engine if `state` is given."""
    model = ServedModel.objects.create(name="chat", folder=TINY_CHAT)
    if state is not None:
        EngineStatus.objects.create(model=model, state=state, **status)
    return model


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


@pytest.fixture
def with_devices(settings: Any, tmp_path: Path) -> None:
    """The node has found a processor."""
    settings.VINERY_RUN_DIR = tmp_path
    devices.write(tmp_path, [Device("CPU", "Intel Core")])


def test_a_model_without_folder_and_device_is_renamed(root: Client, with_devices: None) -> None:
    model = ServedModel.objects.create(name="chat", folder="/nowhere", device="GPU")
    form = {"name": "new", "folder": "/nowhere", "device": "GPU", "options": "{}"}
    assert root.post(address(model), form).status_code == 302

    model.refresh_from_db()
    assert model.name == "new"


@table(
    "is_loaded, state, shown",
    [
        *((True, EngineState.READY, "Ready"), (True, EngineState.FAILED, "Failed")),
        *((True, EngineState.UNLOADED, "Waiting to load"), (True, None, "Waiting to load")),
        *((False, EngineState.READY, "Unloading"), (False, None, "Unloaded")),
    ],
)
def test_the_list_shows_the_state(
    root: Client, is_loaded: bool, state: EngineState | None, shown: str
) -> None:
    ServedModel.objects.all().delete()
    served(state)
    ServedModel.objects.update(is_loaded=is_loaded)

    assert f'class="field-state">{shown.lower()}</td>' in text_of(root.get(MODELS))


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
