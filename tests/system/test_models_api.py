"""Served models are managed over `/api/models/` while the platform runs, with an admin key."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import REPOSITORY, Running, until
from tests.system.clients import complete, http_of, new_key

pytestmark = pytest.mark.system

TINY_CHAT = REPOSITORY / "models" / "tiny-chat"


@pytest.fixture(scope="module")
def api(running: Running) -> Iterator[httpx.Client]:
    """A client with an admin key."""
    with http_of(running, new_key(running, "automation", "--scope", "admin")) as client:
        client.base_url = f"{running.base_url}/api"
        yield client


def model_named(api: httpx.Client, name: str) -> dict[str, Any]:
    (model,) = api.get("/models/", params={"name": name}).json()["data"]
    return dict(model)


def wait_for(api: httpx.Client, model: dict[str, Any], state: str) -> dict[str, Any]:
    """Wait until the model has the state. Returns it."""

    def read() -> dict[str, Any] | None:
        found = api.get(f"/models/{model['id']}/state/").json()
        return found if found["state"] == state else None

    found = until(read, timeout_s=60)
    assert found
    return dict(found)


def test_the_reference_model_shows_its_engine(api: httpx.Client, running: Running) -> None:
    engine = wait_for(api, model_named(api, "tiny-chat"), "ready")["engine"]

    assert engine["pid"] in running.pids("engine")
    assert engine["memory_bytes"] > 50_000_000
    assert engine["max_context"] > 0
    assert engine["reason"] == engine["last_error"] == ""

    def is_idle() -> bool:
        engine = model_named(api, "tiny-chat")["engine"]
        return bool(engine["num_running"] == engine["num_waiting"] == 0)

    until(is_idle)


def test_a_model_comes_and_goes_over_the_api(
    api: httpx.Client, running: Running, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(TINY_CHAT, tmp_path / "model"))
    weights = folder / "openvino_model.bin"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1])

    created = api.post("/models/", json={"name": "api-a", "folder": str(folder)})
    assert created.status_code == 201
    model = created.json()
    failed = wait_for(api, model, "failed")
    assert "The weights file openvino_model.bin is cut" in failed["engine"]["reason"]

    stamps = weights.stat()
    weights.write_bytes(whole)
    assert weights.stat().st_size != stamps.st_size
    assert api.post(f"/models/{model['id']}/retry/").status_code in (200, 409)
    wait_for(api, model, "ready")
    assert complete(running, "api-a").status_code == 200

    renamed = api.patch(f"/models/{model['id']}/", json={"name": "api-b"}).json()
    assert renamed["name"] == "api-b"
    until(lambda: complete(running, "api-b").status_code == 200, timeout_s=60)
    assert complete(running, "api-a").status_code == 404

    assert api.post(f"/models/{model['id']}/unload/").json()["state"] == "unloading"
    wait_for(api, model, "unloaded")
    assert complete(running, "api-b").status_code == 503

    assert api.delete(f"/models/{model['id']}/").status_code == 204
    until(lambda: complete(running, "api-b").status_code == 404)


def test_a_device_that_is_not_there_is_refused(api: httpx.Client) -> None:
    known = api.get("/devices/").json()
    assert "CPU" in {each["name"] for each in known["data"]}
    body = {"name": "x", "folder": str(TINY_CHAT), "device": "XPU.7"}

    refused = api.post("/models/", json=body)

    error = refused.json()["error"]
    assert (refused.status_code, error["param"]) == (400, "device")
    assert "There is no device XPU.7 on this machine. Devices: CPU (" in error["message"]
