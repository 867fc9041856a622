"""The admin's form of a served model, and the permission to load one."""

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from tests.catalog.conftest import TINY_CHAT as FOLDER
from tests.catalog.conftest import text_of
from tests.tables import table
from vinery_accounts.models import AuditEntry, ModelWeight, User
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
    """A model in a row, with the status of its engine if it has one."""
    model = ServedModel.objects.create(name="chat", folder=TINY_CHAT)
    if state is not None:
        EngineStatus.objects.create(model=model, state=state, **status)
    return model


def errors_of(client: Client, **values: str) -> dict[str, Any]:
    """The form's errors by field. Empty when the model was added."""
    form = {"name": "chat", "folder": TINY_CHAT, "device": "CPU", "options": "{}"} | values
    response = client.post(ADD, form)
    return {} if response.status_code == 302 else dict(response.context["adminform"].form.errors)


@pytest.mark.parametrize("options", ["", "{}", "null"])
def test_no_options_are_an_empty_object(root: Client, options: str) -> None:
    assert errors_of(root, options=options) == {}

    assert ServedModel.objects.get().options == {}


@table(
    "options, message",
    [
        ("{max_running: 3}", "This is not JSON: line 1, column 2: Expecting property name"),
        ('{\n"max_running": 3,,\n}', "This is not JSON: line 2, column 18"),
        ('{"max_runing": 3}', "There is no option max_runing. Did you mean max_running?"),
    ],
)
def test_wrong_options_are_refused_at_their_field(root: Client, options: str, message: str) -> None:
    errors = errors_of(root, options=options)

    assert errors.keys() == {"options"}
    assert message in errors["options"][0]
    assert not ServedModel.objects.exists()


def test_a_missing_folder_is_refused_once_and_with_wrong_options_together(root: Client) -> None:
    errors = errors_of(root, folder="/nowhere", options="[]")

    assert errors == {
        "folder": ["There is no folder /nowhere."],
        "options": ['Write a JSON object, such as {"max_running": 16}.'],
    }

    assert errors_of(root, folder="") == {"folder": ["This field is required."]}


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
        (True, EngineState.READY, "Ready"),
        (True, EngineState.LOADING, "Loading"),
        (True, EngineState.FAILED, "Failed"),
        (True, EngineState.UNLOADED, "Waiting to load"),
        (True, None, "Waiting to load"),
        (False, EngineState.READY, "Unloading"),
        (False, EngineState.UNLOADED, "Unloaded"),
        (False, None, "Unloaded"),
    ],
)
def test_the_list_shows_the_state(
    root: Client, is_loaded: bool, state: EngineState | None, shown: str
) -> None:
    ServedModel.objects.all().delete()
    served(state)
    ServedModel.objects.update(is_loaded=is_loaded)

    assert f">{shown}</span>" in text_of(root.get(MODELS))


def test_an_engine_with_earlier_settings_is_not_reported_as_ready(root: Client) -> None:
    model = ServedModel.objects.create(name="chat", folder=TINY_CHAT, is_loaded=True)
    EngineStatus.objects.create(
        model=model, state=EngineState.READY, settings_digest=model.settings_digest
    )
    model.options = {"max_running": 3}
    model.save()

    assert ">Waiting to load</span>" in text_of(root.get(MODELS))

    assert "Nothing matches" in text_of(root.get(MODELS, {"q": "nothing-is-called-this"}))


def test_a_long_error_is_cut_in_the_list_and_the_action_to_load_tries_again(root: Client) -> None:
    error = "It went wrong, " * 20 + "here."
    model = served(EngineState.FAILED, last_error=error)
    assert "went wrong" in text_of(root.get(MODELS))
    assert "here." not in text_of(root.get(MODELS))
    assert error in text_of(root.get(address(model)))

    root.post(MODELS, {"action": "load", "_selected_action": [model.pk]})
    model.refresh_from_db()
    assert model.retried_at is not None
    assert AuditEntry.objects.get(target_kind="model").action == "model.retry"


def test_the_page_of_a_model_that_is_tried_again_shows_how_often(root: Client) -> None:
    error = "There is not enough memory.\n\nstd::bad_alloc"
    model = served(EngineState.RETRYING, last_error=error, num_attempts=1, max_attempts=4)
    page = text_of(root.get(address(model)))
    assert ">Retrying (2 of 4)</span>" in text_of(root.get(MODELS))
    assert "max_attempts: 4" in page
    assert "There is not enough memory.<br><br>std::bad_alloc" in page
    rows = text_of(root.get(MODELS))
    assert "There is not enough memory." in rows
    assert "bad_alloc" not in rows


def test_a_new_name_warns_of_what_has_the_old_one(root: Client) -> None:
    model = served()
    ModelWeight.objects.create(model="chat")
    form = {"name": "new", "folder": TINY_CHAT, "device": "CPU", "options": "{}"}

    text = text_of(root.post(address(model), form, follow=True))

    assert "The token weights are for chat: they do not count for new." in text


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
