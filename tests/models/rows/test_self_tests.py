"""Administrators ask for the self-test of a vision model, and see its failure with the model."""

import argparse

import pytest
from django.test import Client

from tests.models.rows.conftest import LIST, text_of
from tests.models.rows.conftest import MODELS as FOLDERS
from tests.tables import table
from vinery_accounts.models import AuditEntry, User
from vinery_accounts.resources.base import EVERYTHING, Conflict
from vinery_platform.cli import model as command
from vinery_serving.models import registry
from vinery_serving.models.engine_status import PICTURES_FAILED, EngineState, EngineStatus
from vinery_serving.models.models import ServedModel
from vinery_serving.models.resource import MODELS

pytestmark = pytest.mark.django_db
FAILURE = f"{PICTURES_FAILED} GPU.1: Some different pictures look alike to the model: red and blue."


def served(name: str, folder: str, state: EngineState = EngineState.READY) -> ServedModel:
    model = registry.add_model(FOLDERS / folder, name=name)
    EngineStatus.objects.create(model=model, state=state)
    return model


@pytest.fixture
def seer() -> ServedModel:
    """A vision model that failed its test on loading."""
    model = served("seer", "tiny-vision")
    EngineStatus.objects.filter(model=model).update(last_error=FAILURE)
    return ServedModel.objects.get()


def actions() -> list[str]:
    return [entry.action for entry in AuditEntry.objects.filter(target_kind="model")]


def by_console(client: Client, model: ServedModel) -> str:
    return text_of(client.post(f"{LIST}{model.pk}/self-test/", follow=True))


def test_a_button_asks_for_an_audited_test(root: Client, seer: ServedModel) -> None:
    assert "Testing seer" in by_console(root, seer)

    seer.refresh_from_db()
    assert seer.test_asked_at is not None
    assert "model.self-test" in actions()


@table(
    "folder, is_loaded, state, reason",
    [
        ("tiny-chat", True, EngineState.READY, "takes text only"),
        ("tiny-vision", False, EngineState.UNLOADED, "is not loaded, it is unloaded: load it"),
        ("tiny-vision", True, EngineState.LOADING, "it is loading: wait until it is ready"),
        ("tiny-vision", True, EngineState.FAILED, "it is failed: wait until it is ready"),
    ],
)
def test_a_model_without_an_engine_that_sees_is_not_tested(
    folder: str, is_loaded: bool, state: EngineState, reason: str
) -> None:
    ServedModel.objects.all().delete()
    served("model", folder, state)
    ServedModel.objects.update(is_loaded=is_loaded)

    with pytest.raises(Conflict, match=reason):
        MODELS.act(EVERYTHING, MODELS.action("self-test"), ServedModel.objects.get())


def test_a_failure_is_shown_to_administrators_alone(root: Client, seer: ServedModel) -> None:
    body = MODELS.serializer(seer, context={"access": EVERYTHING}).data["engine"]
    assert FAILURE in text_of(root.get(LIST))
    assert body["reason"] == MODELS.columns["last_error"](seer) == FAILURE
    root.force_login(User.objects.create_user("alice"))
    assert PICTURES_FAILED not in text_of(root.get(LIST))
    assert root.post(f"{LIST}{seer.pk}/self-test/").status_code == 404


@table(
    "error, printed, status",
    [(FAILURE, FAILURE, 1), ("", "passed", 0), ("Replica 1 could not load.", "passed", 0)],
)
def test_the_command_prints_what_the_node_has_written(
    error: str,
    printed: str,
    status: int,
    seer: ServedModel,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def end_test(_: float) -> None:
        EngineStatus.objects.update(last_error=error)
        ServedModel.objects.update(test_asked_at=None)

    monkeypatch.setattr(command.time, "sleep", end_test)
    assert command.self_test(seer, argparse.Namespace()) == status
    assert capsys.readouterr().out == f"seer: {printed}\n"
