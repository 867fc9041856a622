"""Models of a hub are judged, pulled by the node's job and served from their own folder."""

import asyncio
import hashlib
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core.exceptions import ValidationError

from tests.database_threads import in_thread
from tests.fakes.hub import FakeHub, Fault
from tests.models.hub.archives import FILES, write_tar
from tests.models.hub.conftest import hub as hub
from tests.models.hub.models import TINY_CHAT, TINY_VISION, checkpoint_files, openvino_files
from vinery_accounts.models import AuditEntry
from vinery_accounts.resources.base import EVERYTHING, Conflict
from vinery_serving.models import devices, pulls
from vinery_serving.models.devices import Device
from vinery_serving.models.engine_status import ShownState
from vinery_serving.models.hub.errors import PullFailed
from vinery_serving.models.hub.verdict import Answer
from vinery_serving.models.job_requests import Pull, Repository, take_result
from vinery_serving.models.job_resource import MODEL_JOBS
from vinery_serving.models.job_rows import JobKind, JobState, ModelJob, secret_of
from vinery_serving.models.models import ServedModel
from vinery_serving.models.pulls import Judged
from vinery_serving.models.resource import MODELS
from vinery_serving.node import job_runner
from vinery_serving.node.job_runner import JobRunner

pytestmark = [pytest.mark.django_db, pytest.mark.stores]
WEIGHTS = "openvino_model.bin"


@pytest.fixture(autouse=True)
def home(settings: Any, tmp_path: Path) -> Path:
    settings.VINERY_HOME = settings.VINERY_LOG_DIR = settings.VINERY_RUN_DIR = tmp_path
    settings.VINERY_PULLED_DIR = tmp_path / "models"
    return tmp_path


@pytest.fixture
def tiny(hub: FakeHub) -> FakeHub:
    hub.add_folder("acme/tiny", TINY_CHAT, cardData={"license": "apache-2.0"})
    return hub


def begun(repository: str = "acme/tiny", **words: Any) -> ModelJob:
    asked = Pull(repository=repository, **words)
    return pulls.pull(asked, judged(repository))


def judged(repository: str = "acme/tiny", device: str = "CPU") -> Judged:
    """In this thread, which has the transaction of the test."""
    return pulls.judge(Repository(repository=repository), pulls.machine_for(device))


@pytest.mark.usefixtures("tiny")
def test_a_model_is_registered_while_it_is_pulled() -> None:
    job = begun()

    model = ServedModel.objects.get()
    assert (model.name, model.folder, model.shown_state) == ("tiny", "", ShownState.PULLING)
    assert "token" not in str(job.parameters).lower()


def test_what_will_not_load_is_not_pulled_and_a_vision_model_has_its_task(hub: FakeHub) -> None:
    hub.add("acme/pickle", {"config.json": b"{}", "pytorch_model.bin": b"x"})
    with pytest.raises(ValidationError, match="pickle format"):
        begun("acme/pickle")
    assert not ServedModel.objects.exists()

    hub.add_folder("acme/seer", TINY_VISION)
    assert take_result(begun("acme/seer"), {"folder": str(TINY_VISION), "source": {}}) == ""

    assert ServedModel.objects.get().task == "vision"


def test_a_name_of_the_catalogue_is_a_repository_and_a_shipped_one_a_folder(hub: FakeHub) -> None:
    hub.add("OpenVINO/Qwen3-8B-int4-ov", openvino_files())
    assert judged("qwen3-8b").name == "Qwen3-8B-int4-ov"

    model = pulls.add_shipped("tiny-chat", "mine", device="CPU", load=False)
    assert model and Path(model.folder) == TINY_CHAT
    assert pulls.add_shipped("qwen3-8b", None, device="CPU", load=False) is None
    with pytest.raises(PullFailed, match="ships with Vinery"):
        judged("tiny-chat")


def test_a_device_with_its_own_memory_is_judged_by_it(hub: FakeHub, home: Path) -> None:
    devices.write(home, [Device("CPU", "c", 10), Device("GPU.0", "g", 1000)])
    hub.add("acme/tiny", openvino_files())

    answers = [judged(device=each).verdict for each in ("GPU.0", "CPU")]

    assert [each and each.answer for each in answers] == [Answer.NO, Answer.YES]


def test_a_checkpoint_is_converted_after_its_pull(hub: FakeHub, tmp_path: Path) -> None:
    hub.add("acme/new", checkpoint_files())
    job = begun("acme/new")

    result = {"folder": str(tmp_path), "source": {"kind": "hub"}, "precision": "int8"}
    assert take_result(job, result) == ""

    conversion = ModelJob.objects.get(kind=JobKind.CONVERT)
    assert conversion.parameters == {"source": str(tmp_path), "precision": "int8"}
    assert ServedModel.objects.get().folder == ""


def test_another_folder_forgets_where_the_files_were_from() -> None:
    model = ServedModel.objects.create(name="m", folder="/gone", source={"kind": "hub"})

    MODELS.change(EVERYTHING, model, {"folder": str(TINY_CHAT)})

    model.refresh_from_db()
    assert model.source == {}


def _run_until(job: ModelJob, state: JobState) -> None:
    async def run() -> None:
        runner = asyncio.create_task(JobRunner().run())
        try:
            async with asyncio.timeout(60):
                while job.state != state:
                    await asyncio.sleep(0.05)
                    await in_thread(job.refresh_from_db)
        finally:
            runner.cancel()
            await asyncio.gather(runner, return_exceptions=True)

    asyncio.run(run())


@pytest.mark.django_db(transaction=True)
def test_the_node_pulls(tiny: FakeHub, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses and cancelled jobs: see `tests/node/test_job_runner.py`."""
    monkeypatch.setattr(job_runner, "_POLL_INTERVAL_S", 0.05)
    monkeypatch.setenv("HF_TOKEN", tiny.token)
    tiny.repositories["acme/tiny"].gate = "private"
    job = begun()
    _run_until(job, JobState.DONE)
    model = ServedModel.objects.get(name="tiny")
    assert Path(model.folder).parent.parent == home / "models"
    assert model.source["files"][WEIGHTS] == 4_780_421
    assert tiny.token not in job.log_path.read_text()
    assert not list((home / "models/.partial").iterdir())


SIGNATURE = "X-Amz-Signature=of-a-stranger&private_token=top-secret"


def kept_rows() -> str:
    """All that the database and the API have of jobs, models and changes."""
    jobs = MODEL_JOBS.serializer(ModelJob.objects.all(), many=True).data
    models = [*ModelJob.objects.values(), *ServedModel.objects.values()]
    return json.dumps([jobs, *models, *AuditEntry.objects.values()], default=str)


@pytest.mark.django_db(transaction=True)
def test_the_end_of_a_url_is_encrypted_until_its_job_ends(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_runner, "_POLL_INTERVAL_S", 0.05)
    archive = write_tar(tmp_path / "m.tar.gz", FILES).read_bytes()
    hub.add("acme/archive", {"m.tar.gz": archive})
    url = f"{hub.endpoint}/acme/archive/resolve/main/m.tar.gz"
    asked = Pull(
        repository=f"{url}?{SIGNATURE}#part", sha256=hashlib.sha256(archive).hexdigest(), name="m"
    )
    hub.fault("m.tar.gz", Fault(), Fault(status=404))
    job = pulls.pull(asked, pulls.judge(asked, pulls.machine_for("CPU")))
    assert (job.parameters["url"], job.parameters["is_signed"]) == (url, True)
    assert secret_of(job) == f"?{SIGNATURE}"
    assert "secret" not in str(AuditEntry.objects.get(action="job.create").after)
    assert "of-a-stranger" not in kept_rows()

    _run_until(job, JobState.FAILED)
    assert job.secret == ""
    with pytest.raises(Conflict, match="Pull the whole URL"):
        MODEL_JOBS.act(EVERYTHING, MODEL_JOBS.action("resume"), job)

    hub.requests.clear()
    job = pulls.pull(asked, pulls.judge(asked, pulls.machine_for("CPU")))
    _run_until(job, JobState.DONE)
    assert [each.path for each in hub.requests if not each.is_storage] == [
        f"/acme/archive/resolve/main/m.tar.gz?{SIGNATURE}"
    ] * 2
    assert job.secret == ""
    assert "of-a-stranger" not in kept_rows() + job.log_path.read_text()


def test_a_migration_takes_secrets_out_of_stored_urls() -> None:
    model = ServedModel.objects.create(name="m", folder=str(TINY_CHAT))
    stored = {"kind": "archive", "url": f"https://store/m.zip?{SIGNATURE}", "size_bytes": 3}
    ended = ModelJob.objects.create(model=model, kind="pull", parameters=stored, state="done")
    waits = ModelJob.objects.create(model=model, kind="pull", parameters=stored)
    plain = {"kind": "hub", "repository": "acme/tiny"}
    other = ModelJob.objects.create(model=model, kind="pull", parameters=plain, state="done")

    migration = import_module("vinery_serving.models.migrations.0004_secrets_of_urls")
    migration.hide_secrets(apps, None)

    for job in (ended, waits, other):
        job.refresh_from_db()
    assert (ended.parameters["url"], secret_of(ended)) == ("https://store/m.zip", "")
    assert (
        waits.parameters
        == ended.parameters
        == {**stored, "url": "https://store/m.zip"} | {"is_signed": True}
    )
    assert secret_of(waits) == f"?{SIGNATURE}"
    assert other.parameters == plain
