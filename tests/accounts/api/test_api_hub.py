"""Models of a hub in the management API: judged, pulled, listed. Administrators only."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from api_client import Api

from tests.fakes.hub import FakeHub, Fault
from tests.hub.conftest import hub as hub
from tests.hub.models import TINY_CHAT, checkpoint_files, openvino_files
from vinery_accounts.models import User


def test_a_model_is_judged_before_it_is_fetched(root: Api, hub: FakeHub) -> None:
    hub.add_folder("acme/tiny", TINY_CHAT)

    verdict = root.post("models/check/", {"repository": "acme/tiny"}, 200)

    assert (verdict["answer"], verdict["task"], verdict["format"]) == ("yes", "chat", "OpenVINO")
    assert verdict["memory"]["weights_bytes"] == 4_780_421
    assert not hub.fetches("openvino_model.bin")


def test_a_hub_is_searched(root: Api, hub: FakeHub) -> None:
    hub.add("acme/tiny", openvino_files(), tags=["openvino"], downloads=5)
    hub.add("acme/tiny-checkpoint", openvino_files())

    (found,) = root.post("models/search/", {"text": "tiny"}, 200)["data"]
    every = root.post("models/search/", {"text": "tiny", "only_openvino": False}, 200)["data"]

    assert found == {"name": "acme/tiny", "downloads": 5, "tag": "", "is_openvino": True}
    assert [each["name"] for each in every] == ["acme/tiny", "acme/tiny-checkpoint"]


def test_a_pull_is_a_job_of_a_new_model(root: Api, hub: FakeHub) -> None:
    commit = hub.add("acme/tiny", openvino_files())

    job = root.post("models/pull/", {"repository": "acme/tiny", "name": "mine"})

    assert (job["kind"], job["state"], job["model"]) == ("pull", "waiting", "mine")
    assert job["parameters"]["commit"] == commit
    (model,) = root.get("models/", name="mine")["data"]
    assert (model["state"], model["source"]) == ("pulling", {})


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"repository": "acme/none"}, "has no repository acme/none"),
        ({"repository": "../../etc"}, "no name of a repository"),
        ({"repository": "acme/tiny", "include": ["*.gguf"]}, "No file of acme/tiny matches"),
        ({"repository": "acme/tiny", "revision": "v9"}, "has no revision v9"),
        ({"repository": "tiny-chat"}, "ships with Vinery"),
    ],
)
def test_what_cannot_be_pulled_is_refused_with_a_sentence(
    root: Api, hub: FakeHub, body: dict[str, object], sentence: str
) -> None:
    hub.add("acme/tiny", openvino_files())

    response = root.request("POST", "models/pull/", body)

    assert response.status_code == 400
    assert sentence in response.json()["error"]["message"]


def test_a_hub_that_does_not_answer_is_named(root: Api, hub: FakeHub) -> None:
    hub.add("acme/tiny", openvino_files())
    hub.fault("api", Fault(status=503))

    response = root.request("POST", "models/check/", {"repository": "acme/tiny"})

    assert "answers 503" in response.json()["error"]["message"]


def test_the_catalogue_has_what_fits(root: Api) -> None:
    entries = {each["name"]: each for each in root.get("catalog/")["data"]}

    assert entries["tiny-chat"]["fits"] is True
    assert entries["qwen3-8b"]["memory"]["total_bytes"] > 4_900_000_000


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "models/check/"), ("POST", "models/pull/"), ("GET", "catalog/")]
)
def test_others_may_not(
    make_user: Callable[..., User], as_user: Callable[[User], Api], method: str, path: str
) -> None:
    api = as_user(make_user("member"))
    body = {"repository": "acme/tiny"} if method == "POST" else None

    assert api.request(method, path, body).status_code == 403


def test_a_checkpoint_is_pulled_for_a_chosen_precision(root: Api, hub: FakeHub) -> None:
    hub.add("acme/tiny-checkpoint", checkpoint_files())
    body = {"repository": "acme/tiny-checkpoint", "precision": "fp16"}

    assert root.post("models/pull/", body)["parameters"]["precision"] == "fp16"
    refused = root.request("POST", "models/pull/", body | {"precision": "int1"})
    assert refused.status_code == 400
