"""Aliases of models: allowed targets, and the effect of changes of a model."""

from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from tests.models.rows.conftest import TINY_CHAT
from tests.tables import table
from vinery_accounts.access import changes
from vinery_accounts.models import AuditEntry
from vinery_accounts.resources.base import EVERYTHING
from vinery_serving.models import registry
from vinery_serving.models.models import ModelAlias, ServedModel
from vinery_serving.models.resource import MODELS

pytestmark = [pytest.mark.django_db, pytest.mark.stores]


@pytest.fixture(autouse=True)
def served(settings: Any, tmp_path: Path) -> None:
    settings.VINERY_RUN_DIR = tmp_path
    for name in ("qwen-a", "qwen-b"):
        registry.add_model(TINY_CHAT, name=name, load=False)


def alias(name: str, targets: object) -> ModelAlias:
    return changes.add(ModelAlias(name=name, targets=targets))


def test_an_alias_names_models_by_their_weights_follows_a_new_name_and_is_shown() -> None:
    row = alias("chat", {"qwen-a": 90, "qwen-b": 10})
    assert alias("claude-*", {"qwen-b": 1}).name == "claude-*"
    assert ModelAlias.objects.get(name="chat").targets == {"qwen-a": 90, "qwen-b": 10}
    assert AuditEntry.objects.filter(target="chat", action="alias.create").count() == 1

    MODELS.change(EVERYTHING, ServedModel.objects.get(name="qwen-a"), {"name": "qwen-c"})
    row.refresh_from_db()
    assert row.targets == {"qwen-c": 90, "qwen-b": 10}
    assert AuditEntry.objects.filter(target="chat", action="alias.update").count() == 1

    with pytest.raises(ValidationError, match="There is an alias of this name"):
        registry.add_model(TINY_CHAT, name="chat")


@table(
    "name, targets, message",
    [
        ("qwen-b", {"qwen-a": 1}, "A model is served under this name."),
        *((name, {"qwen-a": 1}, "Use letters, digits") for name in ("a b", "*", "a*b", "a**")),
        ("chat", {}, "cannot be blank"),
        ("chat", [], "cannot be blank"),
        ("chat", ["qwen-a"], "Give models with their weights"),
        ("chat", {"chat": 1}, "No model is served under the name chat."),
        ("chat", {"qwen-a": -1}, "The weight of qwen-a must be 0 to 1,000,000."),
        ("chat", {"qwen-a": 0.5}, "The weight of qwen-a must be"),
        ("chat", {"qwen-a": True}, "The weight of qwen-a must be"),
        ("chat", {"qwen-a": 0}, "At least one weight must be above 0."),
        ("chat", {f"m{n}": 1 for n in range(21)}, "An alias has at most 20 models."),
    ],
)
def test_what_is_no_alias_is_refused(name: str, targets: object, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        alias(name, targets)
