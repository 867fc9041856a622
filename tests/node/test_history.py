"""The history of a model: which reports are events, and with which reason."""

from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from tests.catalog.conftest import TINY_CHAT
from vinery_accounts.access import changes
from vinery_accounts.base.actors import Actor, acting_as
from vinery_serving.models import registry
from vinery_serving.models.job_rows import ModelEvent
from vinery_serving.models.models import ServedModel
from vinery_serving.node import status

pytestmark = pytest.mark.django_db


def test_a_change_that_was_asked_for_names_who_asked(settings: Any, tmp_path: Path) -> None:
    settings.VINERY_RUN_DIR = tmp_path
    with acting_as(Actor(None, "olga")):
        model = registry.add_model(TINY_CHAT, name="chat")
    _test_itself(model)
    for state, error, reason in (
        ("loading", "", None),
        ("ready", "", ""),
        ("ready", "", ""),
        ("asleep", "", "idle for 3 s"),
        ("asleep", "", ""),
        ("loading", "", "woken by a request"),
        ("loading", "It crashed.", None),
        ("failed", "It is cut.\n\nThe original.", None),
    ):
        status._write(model.pk, {"state": state, "last_error": error}, reason)
    with acting_as(Actor(None, "bob")):
        registry.load(model, False)
    status._write(model.pk, {"state": "unloaded"}, None)
    status._write(model.pk, {"state": "loading"}, status.AT_START)
    with acting_as(Actor(None, "carla")):
        changes.change(model, options={"max_running": 2})
    _test_itself(model)
    status._write(model.pk, {"state": "loading"}, status.CHANGED)
    with acting_as(Actor(None, "dora")):
        registry.retry(model)
    status._write(model.pk, {"state": "loading"}, None)
    status._write(model.pk, {"state": "loading"}, "its files were changed")
    status._write(model.pk, {"state": "unloaded"}, status.STOPPED)

    assert [(each.state, each.reason) for each in ModelEvent.objects.order_by("id")] == [
        ("loading", "loaded by olga"),
        ("ready", ""),
        ("asleep", "idle for 3 s"),
        ("loading", "woken by a request"),
        ("loading", "It crashed."),
        ("failed", "It is cut."),
        ("unloaded", "unloaded by bob"),
        ("loading", "loaded at the start"),
        ("loading", "settings changed by carla"),
        ("loading", "loaded by dora"),
        ("loading", "its files were changed"),
        ("unloaded", "the server was stopped"),
    ]


def _test_itself(model: ServedModel) -> None:
    """An act that starts no engine."""
    with acting_as(Actor(None, "tester")):
        changes.switch(model, "self-test", test_asked_at=timezone.now())
