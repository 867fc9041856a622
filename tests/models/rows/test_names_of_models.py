"""Keys, limits and weights name models that are served."""

import re
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test import Client

from tests.models.rows.conftest import TINY_CHAT
from tests.tables import table
from vinery_accounts.access import changes
from vinery_accounts.access.changes import first_project
from vinery_accounts.keys.lifecycle import create_key
from vinery_accounts.models import ApiKey, Limit, User
from vinery_accounts.resources.base import EVERYTHING
from vinery_accounts.resources.keys import KEYS
from vinery_accounts.resources.limits import LIMITS, MODEL_WEIGHTS
from vinery_serving.models import registry
from vinery_serving.models.engine_status import EngineState, EngineStatus
from vinery_serving.models.models import ModelAlias, ServedModel

pytestmark = pytest.mark.django_db

NO_CHATT = "No model or alias has the name tiny-chatt. Did you mean tiny-chat?"
A_DAY = {"scope": "model", "metric": "tokens", "window": "day", "amount": 10}


@pytest.fixture(autouse=True)
def served(settings: Any, tmp_path: Path) -> None:
    settings.VINERY_RUN_DIR = tmp_path
    for name in ("tiny-chat", "hidden", "other"):
        registry.add_model(TINY_CHAT, name=name, load=name == "tiny-chat")
    ServedModel.objects.filter(name="hidden").update(project_ids=[10**6])
    changes.add(ModelAlias(name="gpt", targets={"tiny-chat": 1}))


@pytest.fixture
def owner(db: None) -> User:
    return User.objects.create_superuser("olga")


def new_key(owner: User, *names: str) -> ApiKey:
    columns = {"name": "k", "project": first_project(), "allowed_models": list(names)}
    row: ApiKey = KEYS.create(EVERYTHING, {"owner": owner, **columns}).row
    return row


@table(
    "name, message",
    [
        ("tiny-chatt", NO_CHATT),
        ("hidden", "No model or alias has the name hidden. Add the model first."),
        ("zzz", "No model or alias has the name zzz. Add the model first."),
    ],
)
def test_a_key_names_models_and_aliases_that_its_project_sees(
    owner: User, name: str, message: str
) -> None:
    key = new_key(owner, "tiny-chat", "gpt")
    with pytest.raises(ValidationError) as refused:
        new_key(owner, name)
    assert refused.value.message_dict == {"allowed_models": [message]}
    with pytest.raises(ValidationError):
        KEYS.change(EVERYTHING, key, {"allowed_models": ["gpt", name]})


def test_what_a_key_names_already_stays_and_before_the_first_model_any_name_is_right(
    owner: User,
) -> None:
    key = create_key(owner=owner, name="k", allowed_models=["gone"]).key
    KEYS.change(EVERYTHING, key, {"allowed_models": ["gone", "gpt"]})
    ModelAlias.objects.all().delete()
    ServedModel.objects.all().delete()
    new_key(owner, "soon")


def test_limits_and_weights_name_models() -> None:
    for resource, values in ((LIMITS, A_DAY), (MODEL_WEIGHTS, {})):
        resource.create(EVERYTHING, {**values, "model": "tiny-chat"})
        for name, message in (("tiny-chatt", "Did you mean"), ("gpt", "gpt is an alias")):
            with pytest.raises(ValidationError, match=message):
                resource.create(EVERYTHING, {**values, "model": name})
    Limit.objects.update(model="gone")
    LIMITS.change(EVERYTHING, Limit.objects.get(), {"amount": 20})


@table(
    "states, allowed, example",
    [
        ({"tiny-chat": EngineState.READY}, [], "tiny-chat"),
        ({"tiny-chat": EngineState.ASLEEP}, [], "tiny-chat"),
        ({"tiny-chat": EngineState.READY}, ["other", "gpt"], "gpt"),
        ({"tiny-chat": EngineState.READY}, ["other"], "other"),
        ({"tiny-chat": EngineState.FAILED}, [], "other"),
        ({"tiny-chat": EngineState.ASLEEP, "other": EngineState.READY}, [], "other"),
    ],
)
def test_the_example_of_a_new_key_names_a_model_that_answers_it(
    owner: User, client: Client, states: dict[str, str], allowed: list[str], example: str
) -> None:
    EngineStatus.objects.all().delete()
    for name, state in states.items():
        ServedModel.objects.filter(name=name).update(is_loaded=True)
        model = ServedModel.objects.get(name=name)
        EngineStatus.objects.create(model=model, state=state)
    client.force_login(owner)
    form = {"name": "k", "project": first_project().pk, "scopes": ["inference"]}
    form |= {"models": allowed}
    text = client.post("/console/keys/new/", form).content.decode()
    found = re.findall('"model": "(.*?)"', text.replace("&quot;", '"'))
    assert found == [example]


def test_a_new_key_without_a_model_for_chats_leads_to_the_models(
    owner: User, client: Client
) -> None:
    ServedModel.objects.update(task="embeddings")
    client.force_login(owner)
    form = {"name": "k", "project": first_project().pk, "scopes": ["inference"]}
    text = client.post("/console/keys/new/", form).content.decode()
    assert "no model yet that could answer this key" in text
    assert 'href="/console/models/">Models</a>' in text
    assert "Ask with curl" not in text


def test_the_form_of_a_key_lists_the_models_of_its_project_and_those_removed_since(
    owner: User, client: Client
) -> None:
    client.force_login(owner)
    key = new_key(owner, "other", "gpt")
    ServedModel.objects.get(name="other").delete()
    address = f"/console/keys/{key.pk}/"
    listed = re.findall(
        r'<input type="checkbox" name="models" value="(.*?)".*?>\s*(.*?)</label>',
        client.get(address).content.decode(),
    )
    assert listed == [
        ("tiny-chat", "tiny-chat"),
        ("gpt", "gpt (alias)"),
        ("other", "other (removed)"),
    ]
    form = {"name": "k", "scopes": ["inference"], "models": ["other", "tiny-chatt"]}
    assert NO_CHATT in client.post(address, form).content.decode()
    assert client.post(address, form | {"models": ["other", "tiny-chat"]}).status_code == 302
    key.refresh_from_db()
    assert key.allowed_models == ["other", "tiny-chat"]
