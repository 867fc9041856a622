"""Served models and devices in the management API, which are for administrators of the platform."""

import os
from pathlib import Path
from typing import Any

import pytest
from api_client import Api, Tenant
from row_builders import logged

from tests.conftest import REPOSITORY
from tests.tables import table
from vinery_accounts.keys.lifecycle import create_key
from vinery_accounts.models import ApiKey, AuditEntry, Limit, ModelWeight, User
from vinery_serving.models import devices, engine_work
from vinery_serving.models.devices import Device
from vinery_serving.models.engine_status import EngineState, EngineStatus
from vinery_serving.models.engine_work import show_engine_work
from vinery_serving.models.models import ServedModel
from vinery_serving.processes.logs.file import LogBounds, LogFile, engine_name, log_path
from vinery_serving.processes.logs.lines import time_text
from vinery_serving.transport.messages import EngineStats

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


@pytest.fixture
def path(chat: dict[str, Any]) -> str:
    return f"models/{chat['id']}/"


def report(state: EngineState, **values: object) -> None:
    model_id = ServedModel.objects.get().pk
    EngineStatus.objects.update_or_create(model_id=model_id, defaults={"state": state, **values})


def audited() -> list[str]:
    """The actions on the model after its creation."""
    first, *others = logged(target_kind="model")
    assert first == "model.create"
    return others


def test_a_model_is_served_changed_and_removed(root: Api, chat: dict[str, Any], path: str) -> None:
    assert chat["device"] == "CPU"
    assert (chat["options"], chat["is_loaded"], chat["state"]) == ({}, True, "waiting")

    changed = root.patch(path, {"options": {"max_running": 4}, "is_loaded": False})
    assert (changed["options"], changed["state"]) == ({"max_running": 4}, "unloaded")
    assert root.patch(path, {"name": "chat-b"})["name"] == "chat-b"
    assert root.column("models/", is_loaded=False) == ["chat-b"]
    assert root.column("models/", name="chat") == []
    # A model whose folder is gone can be renamed.
    ServedModel.objects.update(folder="/nowhere", device="GPU")
    assert root.patch(path, {"name": "new"})["name"] == "new"
    assert root.delete(path) is None

    assert audited() == [*["model.update"] * 3, "model.delete"]
    assert AuditEntry.objects.get(action="model.create").actor == "root"
    assert root.error("GET", path)[0] == 404
    seer = root.post("models/", {"name": "seer", "folder": "tiny-vision"})
    assert seer["folder"] == str(REPOSITORY / "models" / "tiny-vision")


@table(
    "values, param, message",
    [
        ({"folder": "/nowhere"}, "folder", "There is no folder /nowhere."),
        ({"folder": "models"}, "folder", "models is not an absolute path."),
        ({"name": "a model"}, "name", "Use letters, digits and"),
        ({"name": "chat"}, "name", "Another model is served under this name."),
        ({"device": "GPU"}, "device", "There is no device GPU on this machine. Devices: CPU ("),
        ({"device": ""}, "device", "may not be blank"),
        ({"options": {"max_runing": 3}}, "options", "max_runing. Did you mean max_running?"),
        ({"options": {"max_running": "many"}}, "options", "must be a whole number, got a text."),
        ({"options": [3]}, "options", "Write a JSON object"),
        ({"options": None}, "options", "may not be null"),
        ({"state": "ready"}, "state", "This cannot be set."),
    ],
)
def test_a_wrong_value_is_refused_at_its_field(
    root: Api, path: str, values: dict[str, Any], param: str, message: str
) -> None:
    body = {"name": "new", "folder": TINY_CHAT} | values
    asked = [("POST", "models/", body)]
    if values != {"name": "chat"}:  # its own name
        asked.append(("PATCH", path, values))
    for method, where, each in asked:
        response = root.request(method, where, each)

        error = response.json()["error"]
        assert (response.status_code, error["param"]) == (400, param)
        assert message in error["message"]
    assert ServedModel.objects.count() == 1


@table(
    "action, state, is_loaded, status",
    [
        *((action, EngineState.FAILED, True, 200) for action in ("retry", "load")),
        ("retry", EngineState.RETRYING, True, 200),
        ("retry", EngineState.READY, True, 409),
        ("retry", EngineState.UNLOADED, False, 409),
    ],
)
def test_only_failed_models_are_retried(
    root: Api, path: str, action: str, state: EngineState, is_loaded: bool, status: int
) -> None:
    ServedModel.objects.update(is_loaded=is_loaded, retried_at=None)
    num_before = len(audited())
    report(state, last_error="The weights are cut.", num_attempts=1, max_attempts=1)

    answer = root.post(f"{path}{action}/", status=status)

    is_retried = ServedModel.objects.get().retried_at is not None
    assert is_retried == (status == 200) == (answer.get("state") == "waiting")
    assert audited()[num_before:] == (["model.retry"] if is_retried else [])


def test_the_state_has_reason_first_error_and_the_last_line_of_the_log(
    root: Api, chat: dict[str, Any], path: str, run_dir: Path
) -> None:
    error = "There is not enough memory.\n\nstd::bad_alloc"
    report(EngineState.RETRYING, last_error=error, num_attempts=1, max_attempts=4)

    state = root.get(f"{path}state/")
    assert (state["id"], state["name"], state["state"]) == (chat["id"], "chat", "retrying")
    engine = state["engine"]
    assert (engine["reason"], engine["last_error"]) == ("There is not enough memory.", error)
    assert (engine["num_attempts"], engine["max_attempts"]) == (1, 4)
    assert engine["pid"] is engine["memory_bytes"] is engine["num_running"] is None

    assert root.get(f"{path}state/")["log"] is None
    LogFile(log_path(run_dir, engine_name("chat")), LogBounds()).write(
        f"{time_text(0)} ERROR engine-chat room: the weights do not fit\n".encode()
    )

    (line,) = root.get(f"{path}state/")["log"]
    assert line.endswith("the weights do not fit")


def test_the_work_of_an_engine_is_shown_if_this_process_knows_it(
    root: Api, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_work, "_ask", [*engine_work._ask])
    work = EngineStats(3, 5, output_tokens_per_s=40.0, first_token_s=(0.1, 0.5), cache_usage=0.25)
    show_engine_work(lambda: {"chat": work})
    report(EngineState.READY, pid=os.getpid(), max_context=2048)

    engine = root.get(path)["engine"]

    assert (engine["num_running"], engine["num_waiting"]) == (3, 5)
    assert engine["work"] == {
        "prompt_tokens_per_s": 0.0,
        "output_tokens_per_s": 40.0,
        "first_token_s": {"p50": 0.1, "p95": 0.5},
        "inter_token_s": None,
        "cache_usage": 0.25,
        "cache_bytes": 0,
        "prefix_hit_rate": None,
        "draft_acceptance": None,
        "draft_loss": None,
    }
    assert engine["max_context"] == 2048
    # The process with this id is no engine: the engine has ended, and the test process has its id.
    assert engine["memory_bytes"] is None


def test_a_new_name_warns_of_what_has_the_old_one(root: Api, path: str, ours: Tenant) -> None:
    keys = {"owner": User.objects.get(username="root"), "project": ours.one}
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


def test_devices_are_listed_after_the_node_has_looked(root: Api, run_dir: Path) -> None:
    body = root.get("devices/")
    assert (body["object"], bool(body["found_at"])) == ("list", True)
    assert body["data"] == [
        {"name": "CPU", "full_name": "Intel Core", "memory_bytes": 2**35, "driver": None}
    ]

    (run_dir / "devices.json").unlink()

    assert root.get("devices/") == {"object": "list", "data": [], "found_at": None}
    # The engine reports what is wrong.
    assert root.post("models/", {"name": "x", "folder": TINY_CHAT, "device": "GPU"})["id"]
