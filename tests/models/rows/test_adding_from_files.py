"""Administrators add models from archives, GGUF files and checkpoints in the console."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from tests.fakes.hub import FakeHub
from tests.models.convert.checkpoints import write_checkpoint
from tests.models.hub.archives import FILES, write_zip
from tests.models.hub.conftest import hub
from tests.models.rows.conftest import ADD, LIST, TINY_CHAT, error_at, text_of
from tests.models.rows.test_adding_from_hubs import machine
from tests.tables import table
from vinery_serving.models import registry
from vinery_serving.models.job_rows import JobKind, JobState, ModelJob
from vinery_serving.models.models import ServedModel

__all__ = ["hub", "machine"]  # fixtures
pytestmark = pytest.mark.django_db
FILE, CONVERT, HUB = f"{ADD}file/", f"{ADD}convert/", f"{ADD}hub/"


# -- Archives and files


def test_an_archive_is_pulled_by_its_digest(root: Client, hub: FakeHub, tmp_path: Path) -> None:
    data = write_zip(tmp_path / "tiny.zip", FILES).read_bytes()
    hub.add("acme/archive", {"tiny.zip": data})
    url = f"{hub.endpoint}/acme/archive/resolve/main/tiny.zip"
    form = {"repository": url, "device": "CPU", "is_loaded": "on", "option.max_running": "4"}
    assert "needs its" in error_at(text_of(root.post(FILE, form)), "repository")
    text = text_of(root.post(FILE, form | {"sha256": "abc"}))
    assert "64 hexadecimal digits" in error_at(text, "sha256")
    digest = hashlib.sha256(data).hexdigest()
    response = root.post(FILE, form | {"sha256": digest.upper()}, follow=True)
    job = ModelJob.objects.get()
    assert (job.kind, job.model.name, job.model.options) == ("pull", "tiny", {"max_running": 4})
    assert (job.parameters["url"], job.parameters["sha256"]) == (url, digest)
    assert "Fetching tiny. This page shows the progress." in text_of(response)


@table(
    "what, sentence",
    [
        ("", "This field is required."),
        ("models/tiny.zip", "Write a URL, or an absolute path"),
        ("/nowhere/tiny.zip", "cannot be read: No such file"),
    ],
)
def test_a_wrong_source_is_explained(root: Client, hub: FakeHub, what: str, sentence: str) -> None:
    text = text_of(root.post(FILE, {"repository": what, "device": "CPU"}))

    assert sentence in error_at(text, "repository")
    assert not ServedModel.objects.exists()


@pytest.mark.parametrize("what", ["https://store/m.zip", "/models/m.gguf"])
def test_a_url_on_the_page_of_hubs_leads_to_its_page(root: Client, hub: FakeHub, what: str) -> None:
    response = root.get(HUB, {"q": what}, follow=True)

    assert response.redirect_chain[-1][0].startswith(FILE)
    assert f'value="{what}"' in text_of(response)


# -- Checkpoints


def test_a_checkpoint_is_converted_with_its_options(root: Client, tmp_path: Path) -> None:
    page = text_of(root.get(CONVERT))
    assert '<option value="int8" selected>' in page and '<option value="" selected>' in page
    source = write_checkpoint(tmp_path / "tiny")
    form = {"folder": str(source), "device": "CPU", "precision": "int4", "is_loaded": "on"}
    options = {"group_size": "64", "ratio": "0.8", "sym": "on", "awq": "on"}

    response = root.post(CONVERT, form | options, follow=True)

    job = ModelJob.objects.get()
    assert (job.kind, job.model.name) == ("convert", "tiny")
    wanted = {"source": str(source), "precision": "int4", "group_size": 64}
    assert job.parameters == wanted | {"ratio": 0.8, "sym": True, "awq": True}
    assert "Converting tiny. This page shows the progress." in text_of(response)


def test_a_converted_checkpoint_is_converted_again(root: Client, tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "tiny")
    model = registry.add_model(TINY_CHAT, name="mine")
    done: dict[str, Any] = {"model": model, "state": JobState.DONE}
    page = f"{LIST}{model.pk}/"
    assert "Convert again" not in text_of(root.get(page))
    ModelJob.objects.create(kind=JobKind.CONVERT, parameters={"source": str(source)}, **done)
    assert f"{CONVERT}?model={model.pk}" in text_of(root.get(page))
    ModelJob.objects.filter(kind=JobKind.CONVERT).update(state=JobState.RUNNING)
    assert "Convert again" not in text_of(root.get(page))
    ModelJob.objects.filter(kind=JobKind.CONVERT).update(state=JobState.DONE)
    text = text_of(root.get(CONVERT, {"model": model.pk}))
    assert f'name="folder" value="{source}"' in text and 'value="mine"' in text

    form = {"folder": str(source), "name": "mine", "device": "CPU", "precision": "fp16"}
    root.post(CONVERT, form | {"replaces": "on"})
    assert ModelJob.objects.first().parameters["precision"] == "fp16"  # type: ignore[union-attr]
