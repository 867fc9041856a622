"""Changes of served models, with their entries in the audit log."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.models.rows.conftest import MODELS, TINY_CHAT
from vinery_accounts.access import changes
from vinery_accounts.models import AuditEntry
from vinery_serving.models import registry
from vinery_serving.models.engine_status import UNREADABLE, EngineState, EngineStatus
from vinery_serving.models.models import ServedModel, shipped_folder
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


def test_a_shipped_name_does_for_its_folder_unless_there_is_one_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("", ".", "..", "../models/tiny-chat", "training", "tiny"):
        assert shipped_folder(name) is None
    monkeypatch.chdir(tmp_path)
    seer = registry.add_model(Path("tiny-vision"), name="seer", load=False)
    assert Path(seer.folder) == MODELS / "tiny-vision"
    (tmp_path / "tiny-vision").symlink_to(TINY_CHAT)
    mine = registry.add_model(Path("tiny-vision"), name="mine", load=False)
    assert Path(mine.folder) == TINY_CHAT


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
