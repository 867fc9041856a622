"""Changes of served models are in the audit log, from the command line and from the admin."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.catalog.conftest import TINY_CHAT
from vinery_accounts.access import changes
from vinery_accounts.models import AuditEntry, User
from vinery_serving.models import registry
from vinery_serving.models.engine_status import UNREADABLE, EngineState, EngineStatus
from vinery_serving.models.models import ServedModel
from vinery_serving.transport.sockets import settings_key

pytestmark = [pytest.mark.django_db, pytest.mark.stores]


def audited() -> list[str]:
    return [entry.action for entry in AuditEntry.objects.order_by("number")]


def test_changes_by_the_registry_are_audited(tmp_path: Path) -> None:
    registry.add_model(TINY_CHAT, name="chat", options={"max_running": 3})
    registry.load(ServedModel.objects.get(), False)
    registry.load(ServedModel.objects.get(), False)
    # A model whose folder is missing can still be loaded, with an error from the node, and removed.
    ServedModel.objects.filter(name="chat").update(folder=str(tmp_path / "gone"))
    registry.load(ServedModel.objects.get(), True)
    changes.remove(ServedModel.objects.get())
    assert audited() == ["model.create", "model.unload", "model.load", "model.delete"]
    entry = AuditEntry.objects.get(action="model.create")
    assert entry.after["options"] == {"max_running": 3}
    assert entry.organization_id is None


def test_changes_by_the_admin_are_audited(client: Client) -> None:
    client.force_login(User.objects.create_superuser("root"))
    form = {"name": "chat", "folder": str(TINY_CHAT), "device": "CPU", "options": "{}"}
    client.post(reverse("admin:serving_servedmodel_add"), form)
    model = ServedModel.objects.get()
    stamp = model.updated_at
    page = reverse("admin:serving_servedmodel_change", args=[model.pk])
    client.post(page, form | {"device": "GPU"})
    for action in ("load", "unload", "load"):
        chosen = {"action": action, "_selected_action": [model.pk]}
        client.post(reverse("admin:serving_servedmodel_changelist"), chosen)
    model.refresh_from_db()
    assert (model.device, model.is_loaded) == ("GPU", True)
    assert model.updated_at > stamp
    client.post(reverse("admin:serving_servedmodel_delete", args=[model.pk]), {"post": "yes"})

    switched = ("model.load", "model.unload", "model.load")
    assert audited() == ["model.create", "model.update", *switched, "model.delete"]
    assert set(AuditEntry.objects.values_list("actor", flat=True)) == {"root"}


def test_a_failed_model_is_waiting_only_after_what_the_node_reacts_to() -> None:
    model = registry.add_model(TINY_CHAT, name="a")
    digest = model.settings_digest
    EngineStatus.objects.create(model=model, state=EngineState.FAILED, settings_digest=digest)

    def state_after(**columns: Any) -> str:
        ServedModel.objects.update(**columns)
        model = ServedModel.objects.get()
        model.save()  # its time of change is after the report
        return str(model.shown_state)

    assert state_after(is_pinned=True) == "failed"
    assert state_after(options={"defaults": {"temperature": 0}}) == "failed"
    assert state_after(options={"max_running": 2}) == "waiting"
    assert state_after(options={}) == "failed"
    registry.retry(ServedModel.objects.get())
    assert ServedModel.objects.get().shown_state == "waiting"


def test_any_process_shows_why_web_processes_cannot_read_a_model(tmp_path: Path, settings) -> None:
    settings.VINERY_RUN_DIR = tmp_path
    model = registry.add_model(TINY_CHAT, name="a")
    digest = model.settings_digest
    EngineStatus.objects.create(model=model, state=EngineState.READY, settings_digest=digest)
    (tmp_path / UNREADABLE).write_text(json.dumps({settings_key(digest): "It never ends."}))
    model = ServedModel.objects.get()
    assert (model.shown_state, model.status.reason) == ("failed", "It never ends.")

    ServedModel.objects.update(options={"max_running": 2})
    assert ServedModel.objects.get().unreadable_reason == ""
    ServedModel.objects.update(options={})
    (tmp_path / UNREADABLE).write_text("[]")
    assert ServedModel.objects.get().shown_state == "ready"
