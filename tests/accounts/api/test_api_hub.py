"""Models of a hub and conversions in the management API: judged, pulled, converted, listed.
Administrators only."""

from pathlib import Path

import pytest
from api_client import Api, Tenant, as_user

from tests.fakes.hub import FakeHub, Fault
from tests.models.convert.checkpoints import write_checkpoint
from tests.models.hub.conftest import hub as hub
from tests.models.hub.models import TINY_CHAT, checkpoint_files, openvino_files


def refused(root: Api, path: str, body: dict[str, object]) -> str:
    response = root.request("POST", path, body)
    assert response.status_code == 400
    return str(response.json()["error"]["message"])


@pytest.fixture
def tiny(hub: FakeHub) -> str:
    """A model of the hub. Returns its commit."""
    return hub.add("acme/tiny", openvino_files(), tags=["openvino"], downloads=5)


def test_a_model_is_judged_and_a_checkpoint_pulled_for_a_precision(root: Api, hub: FakeHub) -> None:
    hub.add_folder("acme/tiny", TINY_CHAT)

    verdict = root.post("models/check/", {"repository": "acme/tiny"}, 200)
    assert (verdict["answer"], verdict["task"], verdict["format"]) == ("yes", "chat", "OpenVINO")
    assert verdict["memory"]["weights_bytes"] == 4_780_421
    assert not hub.fetches("openvino_model.bin")

    hub.add("acme/tiny-checkpoint", checkpoint_files())
    body = {"repository": "acme/tiny-checkpoint", "precision": "fp16"}
    assert root.post("models/pull/", body)["parameters"]["precision"] == "fp16"
    refused(root, "models/pull/", body | {"precision": "int1"})

    entries = {each["name"]: each for each in root.get("catalog/")["data"]}
    assert entries["tiny-chat"]["fits"] is True
    assert entries["qwen3-8b"]["memory"]["total_bytes"] > 4_900_000_000


def test_a_hub_is_searched_and_a_pull_is_a_job(root: Api, hub: FakeHub, tiny: str) -> None:
    hub.add("acme/tiny-checkpoint", openvino_files())
    (found,) = root.post("models/search/", {"text": "tiny"}, 200)["data"]
    every = root.post("models/search/", {"text": "tiny", "only_openvino": False}, 200)["data"]
    assert found == {"name": "acme/tiny", "downloads": 5, "tag": "", "is_openvino": True}
    assert [each["name"] for each in every] == ["acme/tiny", "acme/tiny-checkpoint"]

    job = root.post("models/pull/", {"repository": "acme/tiny", "name": "mine"})
    assert (job["kind"], job["state"], job["model"]) == ("pull", "waiting", "mine")
    assert job["parameters"]["commit"] == tiny
    (model,) = root.get("models/", name="mine")["data"]
    assert (model["state"], model["source"]) == ("pulling", {})

    hub.fault("api", Fault(status=503))
    response = root.request("POST", "models/check/", {"repository": "acme/tiny"})
    assert "answers 503" in response.json()["error"]["message"]


def test_only_administrators_convert_a_checkpoint(root: Api, tmp_path: Path, ours: Tenant) -> None:
    source = str(write_checkpoint(tmp_path / "tiny"))
    body = {"folder": source, "name": "tiny", "options": {"precision": "int1"}}
    assert "int1" in refused(root, "models/convert/", body)
    assert root.get("models/", name="tiny")["data"] == []

    options = {"precision": "int4", "ratio": 0.8}
    job = root.post("models/convert/", body | {"options": options, "is_loaded": False})
    assert (job["kind"], job["state"], job["model"]) == ("convert", "waiting", "tiny")
    assert job["parameters"] == {"source": source, **options}
    (model,) = root.get("models/", name="tiny")["data"]
    assert (model["state"], model["is_loaded"]) == ("converting", False)

    api, of_hub = as_user(ours.user("member")), {"repository": "acme/tiny"}
    assert api.request("GET", "catalog/").status_code == 403
    for path in ("models/check/", "models/pull/"):
        assert api.request("POST", path, of_hub).status_code == 403
    body = {"folder": "/tmp", "name": "tiny"}
    assert api.request("POST", "models/convert/", body).status_code == 403
