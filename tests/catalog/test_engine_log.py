"""The last lines of an engine are on the pages of administrators, and on no others."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.test import Client
from django.urls import reverse

from tests.conftest import REPOSITORY
from vinery_accounts.models import User
from vinery_serving.catalog import registry
from vinery_serving.catalog.engine_log import engine_log, engine_log_text
from vinery_serving.catalog.models import EngineState, EngineStatus, ServedModel
from vinery_serving.logs.file import LogBounds, LogFile
from vinery_serving.logs.folder import engine_name, log_path
from vinery_serving.logs.lines import time_text

pytestmark = pytest.mark.django_db
MODELS = "/console/models/"
# A line of native code could hold anything.
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, settings: pytest.FixtureRequest) -> Path:
    settings.VINERY_LOG_DIR = tmp_path  # type: ignore[attr-defined]
    return tmp_path


@pytest.fixture
def failed() -> ServedModel:
    model = registry.add_model(REPOSITORY / "models" / "tiny-chat", name="org/tiny")
    EngineStatus.objects.create(model=model, state=EngineState.FAILED, last_error="The reason.")
    return model


@pytest.fixture
def alice() -> User:
    return User.objects.create_user("alice", password="x")


@pytest.fixture
def root() -> User:
    return User.objects.create_superuser("root", password="x")


def write(folder: Path, *messages: str) -> None:
    file = LogFile(log_path(folder, engine_name("org/tiny")), LogBounds())
    for message in messages:
        file.write(f"{time_text(0)} ERROR engine-org/tiny room: {message}\n".encode())


def page(client: Client, user: User, url: str) -> str:
    client.force_login(user)
    response = client.get(url)
    assert response.status_code == 200
    return response.content.decode()


def test_the_last_lines_are_returned_the_oldest_first(folder: Path) -> None:
    write(folder, *map(str, range(80)))

    lines = engine_log("org/tiny")

    assert lines is not None
    assert [line.split()[-1] for line in lines] == [str(number) for number in range(30, 80)]


def test_a_model_of_another_host_has_no_log_here() -> None:
    assert engine_log("org/tiny") is None
    assert "the log is on the host that runs the engine" in engine_log_text("org/tiny")


def test_an_administrator_sees_state_reason_and_log_of_a_model(
    client: Client, root: User, failed: ServedModel, folder: Path
) -> None:
    write(folder, "the weights do not fit", HOSTILE)

    assert "The reason." in page(client, root, MODELS)
    text = page(client, root, f"{MODELS}{failed.pk}/")

    for expected in ("org/tiny", "Failed", "The reason.", "the weights do not fit"):
        assert expected in text
    assert HOSTILE not in text


def test_a_user_sees_names_and_states_alone(
    client: Client, alice: User, failed: ServedModel, folder: Path
) -> None:
    write(folder, "the weights do not fit")

    text = page(client, alice, MODELS)

    assert "org/tiny" in text and "Failed" in text
    assert "The reason." not in text
    assert "the weights do not fit" not in text
    assert "vinery logs" not in text


def test_a_page_without_models_names_what_to_do(client: Client, root: User, alice: User) -> None:
    assert "vinery model add" in page(client, root, MODELS)
    assert "An administrator adds models." in page(client, alice, MODELS)


def test_a_visitor_must_sign_in(client: Client) -> None:
    assert client.get(MODELS).status_code == 302


def test_the_admin_shows_the_log_beside_the_error(
    client: Client, root: User, failed: ServedModel, folder: Path
) -> None:
    write(folder, "the weights do not fit", HOSTILE)

    text = page(client, root, reverse("admin:serving_servedmodel_change", args=[failed.pk]))

    assert "the weights do not fit" in text
    assert HOSTILE not in text
