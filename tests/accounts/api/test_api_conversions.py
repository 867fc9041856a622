"""Conversions in the management API: administrators ask, and see the job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from api_client import Api

from tests.convert.checkpoints import write_checkpoint
from vinery_accounts.models import User


def test_an_administrator_converts_a_checkpoint_into_a_new_model(root: Api, tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "tiny")
    options = {"precision": "int4", "ratio": 0.8}
    body = {"folder": str(source), "name": "tiny", "options": options, "is_loaded": False}
    job = root.post("models/convert/", body)
    assert (job["kind"], job["state"], job["model"]) == ("convert", "waiting", "tiny")
    assert job["parameters"] == {"source": str(source), **options}
    (model,) = root.get("models/", name="tiny")["data"]
    assert (model["state"], model["is_loaded"]) == ("converting", False)


def test_a_wrong_option_is_refused_with_a_sentence(root: Api, tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "tiny")
    body = {"folder": str(source), "name": "tiny", "options": {"precision": "int1"}}
    response = root.request("POST", "models/convert/", body)
    assert response.status_code == 400
    assert "int1" in response.json()["error"]["message"]
    assert root.get("models/", name="tiny")["data"] == []


def test_others_may_not_convert(
    make_user: Callable[..., User], as_user: Callable[[User], Api], tmp_path: Path
) -> None:
    api = as_user(make_user("member"))
    body = {"folder": str(tmp_path), "name": "tiny"}
    assert api.request("POST", "models/convert/", body).status_code == 403
