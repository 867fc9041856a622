"""The admin's form of a served model, states, and the permission to load one."""

from django.contrib.auth.models import Permission
from django.test import Client

from tests.models.rows.conftest import TINY_CHAT as FOLDER
from tests.tables import table
from vinery_accounts.models import User
from vinery_serving.models.engine_status import EngineState, EngineStatus
from vinery_serving.models.models import ServedModel

TINY_CHAT = str(FOLDER)
MODELS = "/admin/serving/servedmodel/"


def address(model: ServedModel, page: str = "change/") -> str:
    return f"{MODELS}{model.pk}/{page}"


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
