"""A folder that hangs or bombs is refused with a sentence, and holds up no other change."""

import os
import resource
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import connection
from django.test import Client
from django.urls import reverse

from tests.models.rows.conftest import ADD, TINY_CHAT, text_of
from tests.tables import table
from vinery_accounts.models import User
from vinery_serving.models import folder_options, job_requests, pulls, registry
from vinery_serving.models.hub.errors import PullFailed
from vinery_serving.models.job_requests import Conversion
from vinery_serving.models.models import ServedModel
from vinery_serving.processes import apart

LOOPS = "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}"
GRAPH = "openvino_model.xml"


def a_copy(folder: Path) -> Path:
    return Path(shutil.copytree(TINY_CHAT, folder))


def sparse(file: Path) -> None:
    with file.open("wb") as opened:
        opened.truncate(2 * 2**30)


def pipe(file: Path) -> None:
    file.unlink(missing_ok=True)
    os.mkfifo(file)


def text(content: str) -> Callable[[Path], object]:
    return lambda file: file.write_text(content)


@table(
    "name, spoil, words",
    [
        ("config.json", sparse, "config.json is larger than 32 MB."),
        ("config.json", pipe, "config.json is not a file."),
        ("tokenizer_config.json", text("[" * 1_000_000), "is broken JSON"),
        (GRAPH, text("<a>" * 100_000 + "</a>" * 100_000), "it is no graph of OpenVINO."),
        (GRAPH, text("<a>" * 20_000_000), "Reading the files of "),
        (GRAPH, sparse, "Reading the files of "),
        ("chat_template.jinja", text(LOOPS), "takes more than 3 s or 1 GB"),
        ("chat_template.jinja", text("{{ 'a' * 10**11 }}"), "Reading the files of "),
        ("chat_template.jinja", text("{{" + "(" * 50_000), "The chat template does not compile"),
    ],
)
def test_a_hostile_folder_is_refused(
    root: Client,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    spoil: Callable[[Path], object],
    words: str,
) -> None:
    monkeypatch.setitem(apart._LIMITS, resource.RLIMIT_CPU, 3)
    monkeypatch.setitem(apart._LIMITS, resource.RLIMIT_AS, 2**30)
    folder = a_copy(tmp_path_factory.mktemp("models") / "model")
    spoil(folder / name)

    body = {"name": "m", "folder": str(folder)}
    answer = root.post("/api/models/", body, content_type="application/json")

    assert answer.status_code == 400, answer.content
    assert words in answer.content.decode()
    assert not ServedModel.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_files_are_read_before_the_transaction_in_which_others_wait(
    client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[bool] = []

    def find(folder: str, options: Mapping[str, Any]) -> folder_options.Findings:
        seen.append(connection.in_atomic_block)
        return folder_options.Findings(None, "It has no end.", "It has no end.")

    client.force_login(User.objects.create_superuser("root"))
    model = registry.add_model(TINY_CHAT, name="chat", load=False)
    monkeypatch.setattr(folder_options, "find", find)
    values = {"name": "m", "folder": str(a_copy(tmp_path / "model")), "device": "CPU"}
    sent = {"content_type": "application/json"}

    assert client.post("/api/models/", values, **sent).status_code == 400
    changed = {"options": {"chat_template": LOOPS}}
    assert client.patch(f"/api/models/{model.pk}/", changed, **sent).status_code == 400
    assert "It has no end." in text_of(client.post(f"{ADD}folder/", values))
    page = reverse("admin:serving_servedmodel_add")
    assert "It has no end." in text_of(client.post(page, {**values, "num_replicas": 1}))
    assert seen
    assert not any(seen)

    # A model can be renamed, whatever its folder has become.
    assert client.patch(f"/api/models/{model.pk}/", {"name": "n"}, **sent).status_code == 200


@pytest.mark.django_db
def test_a_hostile_checkpoint_or_repository_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(apart._LIMITS, resource.RLIMIT_AS, 2**30)
    sparse(tmp_path / "config.json")

    with pytest.raises(ValidationError, match=r"Reading the files of |is larger than|no JSON"):
        job_requests.convert(Conversion(folder=str(tmp_path), name="m"))
    with pytest.raises(PullFailed, match=r"Reading the files of |is larger than|no JSON"):
        pulls.look(job_requests.Repository(repository=str(tmp_path)))
