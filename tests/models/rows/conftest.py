"""The pages of models, for a superuser, and one model that is served."""

from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from tests.conftest import REPOSITORY
from vinery_accounts.models import User
from vinery_serving.models import registry
from vinery_serving.models.engine_status import EngineState, EngineStatus
from vinery_serving.models.models import ServedModel

MODELS = REPOSITORY / "models"
TINY_CHAT = MODELS / "tiny-chat"
LIST = "/console/models/"
ADD = f"{LIST}add/"


@pytest.fixture(autouse=True)
def folder_of_logs(tmp_path: Path, settings: Any) -> Path:
    settings.VINERY_LOG_DIR = tmp_path
    return tmp_path


@pytest.fixture
def root(db: None, client: Client) -> Client:
    client.force_login(User.objects.create_superuser("root"))
    return client


@pytest.fixture
def alice(db: None) -> Client:
    """Someone who is no administrator."""
    client = Client()
    client.force_login(User.objects.create_user("alice"))
    return client


@pytest.fixture
def chat(db: None) -> ServedModel:
    model = registry.add_model(TINY_CHAT, name="chat")
    EngineStatus.objects.create(
        model=model, state=EngineState.READY, num_restarts=3, max_context=2048
    )
    return ServedModel.objects.get()


def text_of(response: Any, status: int = 200) -> str:
    assert response.status_code == status, response
    return unescape(response.content.decode())


def error_at(text: str, field: str) -> str:
    """The error of a form beside one field."""
    beside = text.partition(f'class="field-{field}"')[2].partition('<div class="field-')[0]
    return beside.partition('class="errorlist"')[2].partition("</ul>")[0]


def address(model: ServedModel, rest: str = "") -> str:
    return f"{LIST}{model.pk}/{rest}"


def page(client: Client, model: ServedModel) -> str:
    return text_of(client.get(address(model)))
