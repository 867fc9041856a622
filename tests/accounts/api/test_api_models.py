"""Served models and devices in the management API, which are for administrators of the platform."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from api_client import Api, Tenant

from tests.conftest import REPOSITORY
from vinery_accounts.keys.lifecycle import create_key
from vinery_accounts.models import ApiKey, AuditEntry, Limit, ModelWeight, Role, User
from vinery_serving.catalog import devices, resource
from vinery_serving.catalog.devices import Device
from vinery_serving.catalog.engine_status import EngineState, EngineStatus
from vinery_serving.catalog.engine_work import EngineWork
from vinery_serving.catalog.models import ServedModel
from vinery_serving.catalog.resource import show_engine_work
from vinery_serving.logs.file import LogBounds, LogFile
from vinery_serving.logs.folder import engine_name, log_path
from vinery_serving.logs.lines import time_text

TINY_CHAT = str(REPOSITORY / "models" / "tiny-chat")


@pytest.fixture(autouse=True)
def run_dir(settings: Any, tmp_path: Path) -> Path:
    """The node has found a processor."""
    settings.VINERY_RUN_DIR = settings.VINERY_LOG_DIR = tmp_path
    devices.write(tmp_path, [Device("CPU", "Intel Core", 2**35)])
    return tmp_path


@pytest.fixture
def chat(root: Api) -> dict[str, Any]:
    body: dict[str, Any] = root.post("models/", {"name": "chat", "folder": TINY_CHAT})
    return body


def report(chat: dict[str, Any], state: EngineState, **values: object) -> None:
    """What the node reports."""
    EngineStatus.objects.update_or_create(model_id=chat["id"], defaults={"state": state, **values})


def audited() -> list[str]:
    entries = AuditEntry.objects.filter(target_kind="model").order_by("number")
    return [entry.action for entry in entries]


def test_a_model_is_served_changed_and_removed_with_audit_entries(
    root: Api, chat: dict[str, Any]
) -> None:
    assert chat["device"] == "CPU"
    assert (chat["options"], chat["is_loaded"], chat["state"]) == ({}, True, "waiting")
    path = f"models/{chat['id']}/"

    changed = root.patch(path, {"options": {"max_running": 4}, "is_loaded": False})
    assert (changed["options"], changed["state"]) == ({"max_running": 4}, "unloaded")
    assert root.patch(path, {"name": "chat-b"})["name"] == "chat-b"
    assert root.column("models/", is_loaded=False) == ["chat-b"]
    assert root.column("models/", name="chat") == []
    assert root.delete(path) is None

    assert audited() == ["model.create", "model.update", "model.update", "model.delete"]
    assert AuditEntry.objects.get(action="model.create").actor == "root"
    assert root.error("GET", path)[0] == 404


def test_an_alias_is_created_changed_and_removed(root: Api, chat: dict[str, Any]) -> None:
    root.post("models/", {"name": "chat-b", "folder": TINY_CHAT})
    alias = root.post("model-aliases/", {"name": "gpt-4o", "targets": {"chat": 1}})
    path = f"model-aliases/{alias['id']}/"

    changed = root.patch(path, {"targets": {"chat": 90, "chat-b": 10}})

    assert changed["targets"] == {"chat": 90, "chat-b": 10}
    assert root.column("model-aliases/") == ["gpt-4o"]
    root.patch(f"models/{chat['id']}/", {"name": "chat-a"})
    assert root.get(path)["targets"] == {"chat-a": 90, "chat-b": 10}
    assert (
        root.error("POST", "model-aliases/", {"name": "chat-a", "targets": {"chat-b": 1}})[0] == 400
    )
    assert root.delete(path) is None


def test_aliases_are_for_administrators(root: Api, chat: dict[str, Any], owner: Api) -> None:
    root.post("model-aliases/", {"name": "gpt-4o", "targets": {"chat": 1}})

    assert owner.column("model-aliases/") == []
    body = {"name": "mine", "targets": {"chat": 1}}
    assert owner.error("POST", "model-aliases/", body)[0] == 403


def test_a_model_that_ships_with_vinery_is_added_by_its_name(root: Api) -> None:
    seer = root.post("models/", {"name": "seer", "folder": "tiny-vision"})

    assert seer["folder"] == str(REPOSITORY / "models" / "tiny-vision")


@pytest.mark.parametrize(
    ("values", "param", "message"),
    [
        ({"folder": "/nowhere"}, "folder", "There is no folder /nowhere."),
        ({"folder": "models"}, "folder", "models is not an absolute path."),
        ({"name": "a model"}, "name", "Use letters, digits and"),
        ({"name": "chat"}, "name", "Another model is served under this name."),
        ({"device": "GPU"}, "device", "There is no device GPU on this machine. Devices: CPU ("),
        ({"device": ""}, "device", "may not be blank"),
        (
            {"options": {"max_runing": 3}},
            "options",
            "There is no option max_runing. Did you mean max_running?",
        ),
        (
            {"options": {"max_running": "many"}},
            "options",
            'max_running must be a whole number, not "many".',
        ),
        ({"options": [3]}, "options", "Write a JSON object"),
        ({"options": None}, "options", "may not be null"),
        ({"state": "ready"}, "state", "This cannot be set."),
    ],
)
def test_a_wrong_value_is_refused_at_its_field(
    root: Api, chat: dict[str, Any], values: dict[str, Any], param: str, message: str
) -> None:
    body = {"name": "new", "folder": TINY_CHAT} | values
    for method, path, each in (
        ("POST", "models/", body),
        ("PATCH", f"models/{chat['id']}/", values),
    ):
        if method == "PATCH" and values == {"name": "chat"}:
            continue  # its own name

        response = root.request(method, path, each)

        error = response.json()["error"]
        assert (response.status_code, error["param"]) == (400, param)
        assert message in error["message"]
    assert ServedModel.objects.count() == 1


def test_a_model_whose_folder_is_gone_can_be_renamed(root: Api, chat: dict[str, Any]) -> None:
    ServedModel.objects.update(folder="/nowhere", device="GPU")

    assert root.patch(f"models/{chat['id']}/", {"name": "new"})["name"] == "new"


def test_models_are_loaded_and_unloaded(root: Api, chat: dict[str, Any]) -> None:
    path = f"models/{chat['id']}/"
    report(chat, EngineState.READY, pid=os.getpid())

    assert root.post(f"{path}unload/", status=200)["state"] == "unloading"
    report(chat, EngineState.UNLOADED, pid=None)
    assert root.get(path)["state"] == "unloaded"
    assert root.post(f"{path}load/", status=200)["state"] == "waiting"

    assert audited() == ["model.create", "model.unload", "model.load"]


@pytest.mark.parametrize("action", ["retry", "load"])
@pytest.mark.parametrize("state", [EngineState.FAILED, EngineState.RETRYING])
def test_a_model_that_could_not_load_is_tried_again(
    root: Api, chat: dict[str, Any], action: str, state: EngineState
) -> None:
    path = f"models/{chat['id']}/"
    report(chat, state, last_error="The weights are cut.", num_attempts=1, max_attempts=1)
    assert root.get(path)["state"] == state

    assert root.post(f"{path}{action}/", status=200)["state"] == "waiting"

    assert ServedModel.objects.get().retried_at is not None
    assert audited() == ["model.create", "model.retry"]


@pytest.mark.parametrize(
    ("state", "is_loaded"), [(EngineState.READY, True), (EngineState.UNLOADED, False)]
)
def test_a_model_that_has_not_failed_is_not_tried_again(
    root: Api, chat: dict[str, Any], state: EngineState, is_loaded: bool
) -> None:
    ServedModel.objects.update(is_loaded=is_loaded)
    report(chat, state)

    assert root.error("POST", f"models/{chat['id']}/retry/") == (409, "conflict", None)
    assert audited() == ["model.create"]


def test_the_state_has_the_reason_above_the_original_error(root: Api, chat: dict[str, Any]) -> None:
    report(
        chat,
        EngineState.RETRYING,
        last_error="There is not enough memory.\n\nstd::bad_alloc",
        num_attempts=1,
        max_attempts=4,
    )

    state = root.get(f"models/{chat['id']}/state/")

    assert (state["id"], state["name"], state["state"]) == (chat["id"], "chat", "retrying")
    engine = state["engine"]
    assert engine["reason"] == "There is not enough memory."
    assert engine["last_error"] == "There is not enough memory.\n\nstd::bad_alloc"
    assert (engine["num_attempts"], engine["max_attempts"]) == (1, 4)
    assert engine["pid"] is engine["memory_bytes"] is engine["num_running"] is None


def test_the_state_has_what_the_engine_has_logged_last(
    root: Api, chat: dict[str, Any], run_dir: Path
) -> None:
    path = f"models/{chat['id']}/state/"
    assert root.get(path)["log"] is None
    LogFile(log_path(run_dir, engine_name("chat")), LogBounds()).write(
        f"{time_text(0)} ERROR engine-chat room: the weights do not fit\n".encode()
    )

    (line,) = root.get(path)["log"]

    assert line.endswith("the weights do not fit")


def test_the_work_of_an_engine_is_shown_if_this_process_knows_it(
    root: Api, chat: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "_ask", [*resource._ask])
    work = EngineWork(3, 5, output_tokens_per_s=40.0, first_token_s=(0.1, 0.5), cache_usage=0.25)
    show_engine_work(lambda: {"chat": work})
    report(chat, EngineState.READY, pid=os.getpid(), max_context=2048)

    engine = root.get(f"models/{chat['id']}/")["engine"]

    assert (engine["num_running"], engine["num_waiting"]) == (3, 5)
    assert engine["work"] == {
        "prompt_tokens_per_s": 0.0,
        "output_tokens_per_s": 40.0,
        "first_token_s": {"p50": 0.1, "p95": 0.5},
        "inter_token_s": None,
        "cache_usage": 0.25,
        "prefix_hit_rate": None,
        "draft_acceptance": None,
    }
    assert engine["max_context"] == 2048
    # This process is no engine: its id was given to it after the engine's end.
    assert engine["memory_bytes"] is None


def test_a_new_name_warns_of_what_has_the_old_one(
    root: Api, chat: dict[str, Any], ours: Tenant
) -> None:
    keys = {"owner": User.objects.get(username="root"), "project": ours.one}
    path = f"models/{chat['id']}/"
    assert root.patch(path, {"name": "chat-a"})["warnings"] == []
    Limit.objects.create(scope="model", model="chat-a", metric="requests", window="day", amount=9)
    ModelWeight.objects.create(model="chat-a")
    key = create_key(**keys, name="laptop", allowed_models=["chat-a"]).key
    create_key(**keys, name="any")

    warnings = root.patch(path, {"name": "chat-b"})["warnings"]

    assert warnings == [
        "1 limit is for chat-a: it does not hold for chat-b.",
        "The token weights are for chat-a: they do not count for chat-b.",
        "1 API key is allowed to use chat-a: it may not use chat-b.",
    ]
    assert ApiKey.objects.get(pk=key.pk).allowed_models == ["chat-a"]
    assert root.get(path)["warnings"] == []


@pytest.mark.parametrize("role", [Role.OWNER, Role.VIEWER])
def test_others_neither_see_nor_change_models(
    chat: dict[str, Any], owner: Api, viewer: Api, role: Role
) -> None:
    api = owner if role is Role.OWNER else viewer
    path = f"models/{chat['id']}/"

    assert api.get("models/")["data"] == []
    new = {"name": "new", "folder": TINY_CHAT}
    assert api.error("POST", "models/", new)[0] == 403
    for method, each in (("GET", path), ("PATCH", path), ("DELETE", path)):
        assert api.error(method, each, {})[0] == 404
    for name in ("load", "unload", "retry"):
        assert api.error("POST", f"{path}{name}/")[0] == 404
    assert api.error("GET", f"{path}state/")[0] == 404
    assert api.error("GET", "devices/")[0] == 403


def test_devices_are_listed(root: Api, run_dir: Path) -> None:
    body = root.get("devices/")

    assert body["object"] == "list"
    assert body["data"] == [
        {"name": "CPU", "full_name": "Intel Core", "memory_bytes": 2**35, "driver": None}
    ]
    assert body["found_at"]


def test_no_devices_are_known_before_the_node_has_looked(root: Api, run_dir: Path) -> None:
    (run_dir / "devices.json").unlink()

    assert root.get("devices/") == {"object": "list", "data": [], "found_at": None}
    # The engine reports what is wrong.
    assert root.post("models/", {"name": "x", "folder": TINY_CHAT, "device": "GPU"})["id"]
