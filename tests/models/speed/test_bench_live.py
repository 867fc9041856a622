"""The speed card of the reference model, measured in its engine."""

import asyncio
import io
import json
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from tests.fakes.engine import KEY
from vinery_serving.models import job_requests
from vinery_serving.models.engine_status import EngineState, EngineStatus
from vinery_serving.models.job_requests import take_result
from vinery_serving.models.job_rows import JobKind, JobState, ModelJob, SpeedResult
from vinery_serving.models.jobs import JobDocument, JobFailed, Reporter
from vinery_serving.models.models import ServedModel
from vinery_serving.models.speed import bench
from vinery_serving.models.speed.bench import Engine, MeasurementFailed, prompt_ids
from vinery_serving.models.speed.tune import trial_engine
from vinery_serving.processes.confine import Part, available
from vinery_serving.transport.client import EngineClient
from vinery_serving.transport.sockets import EngineAddress, engine_socket, settings_key
from vinery_serving.transport.waiting import WaitingServer

TINY_CHAT = Path(__file__).resolve().parents[3] / "models" / "tiny-chat"

DIGEST = "0a1b" * 16


def a_document(home: Path, folder: Path = TINY_CHAT, engine_key: bytes = b"") -> JobDocument:
    (home / "run").mkdir(mode=0o700, exist_ok=True)
    names = {"kind": "bench", "job_id": 5, "node_pid": os.getpid(), "model": "tiny-chat"}
    parameters = {"model_id": 3, "settings_digest": DIGEST, "folder": str(folder)}
    keys = {"engine_key": engine_key, "node_key": KEY}
    return JobDocument(**names, home=home, parameters=parameters, **keys)


@pytest.mark.live
async def test_an_engine_is_measured_through_its_socket_beside_others(tmp_path: Path) -> None:
    output, encode = io.StringIO(), bench.encode_of(TINY_CHAT)
    async with trial_engine(TINY_CHAT, "CPU", {}, 1024, 120) as engine:
        address = EngineAddress(3, settings_key(DIGEST))
        document = a_document(tmp_path, engine_key=engine.client.key)
        engine_socket(tmp_path / "run", address).symlink_to(engine.client.path)
        other = asyncio.create_task(keep_asking(engine, prompt_ids(encode, 1, 64)))
        result = await asyncio.to_thread(bench.run, document, Reporter(output))
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)
    stages = [json.loads(line)["stage"] for line in output.getvalue().splitlines()]
    assert stages[0] == "waiting for the model"
    assert stages[1:] == [f"measuring{each}" for each in ("", " 4 streams", " 16 streams")]
    assert [point["streams"] for point in result["points"]] == [1, 4, 16]
    assert all(value > 0 for point in result["points"] for value in point.values())
    assert result["num_other_tokens"] > 0
    assert set(result["versions"]) == {"openvino", "openvino-genai"}


async def test_a_measurement_waits_for_its_model_as_requests_do_and_may_end(tmp_path, monkeypatch):
    """The node hears of it, and wakes the model."""
    has_seen = threading.Event()

    async def wait_connected(*_: object) -> None:
        await asyncio.to_thread(has_seen.wait, 120)
        raise TimeoutError

    monkeypatch.setattr(EngineClient, "wait_connected", wait_connected)
    document, heard = a_document(tmp_path), asyncio.Event()
    node = WaitingServer(tmp_path / "run", KEY, heard.set)
    await node.start()
    reporter = Reporter(io.StringIO())
    measuring = asyncio.create_task(asyncio.to_thread(bench.run, document, reporter))
    await heard.wait()
    assert node.waits[3].num_requests == 1
    has_seen.set()
    with pytest.raises(JobFailed, match=r"The engine ended or did not answer\. Load the model"):
        await measuring
    node.close()


async def keep_asking(engine: Engine, prompt: list[int]) -> None:
    while True:
        await engine.run([prompt], 4)


@pytest.mark.live
async def test_a_trial_that_does_not_load_has_the_engine_s_reason(tmp_path: Path) -> None:
    options = {"plugin": {"NO_SUCH_PROPERTY": 1}}
    with pytest.raises(MeasurementFailed, match="NO_SUCH_PROPERTY"):
        async with trial_engine(TINY_CHAT, "CPU", options, 1024, 120):
            pass


@pytest.mark.live
def test_a_search_and_its_engines_are_confined(tmp_path: Path) -> None:
    asked = {"folder": str(TINY_CHAT), "device": "CPU", "options": {}, "max_context": 1024}
    parameters = {**asked, "time_limit_s": 0.0}
    names = {"kind": "tune", "job_id": 5, "node_pid": os.getpid(), "model": "tiny-chat"}
    document = JobDocument(**names, home=tmp_path, parameters=parameters)
    command = (sys.executable, "-m", "vinery_serving.models.jobs", "tune")
    with Popen(command, stdin=PIPE, stdout=PIPE) as job:
        job.stdin.write(document.to_json())
        job.stdin.close()
        job.stdout.readline()
        status = Path(f"/proc/{job.pid}/status").read_text()
        *_, last = job.stdout
    assert ("Seccomp:\t2" in status) == (Part.CALLS in available())
    assert "trials" in json.loads(last)["result"]


RESULT: Mapping[str, Any] = {
    "points": [
        {
            "streams": 4,
            "prompt_tokens_per_s": 900.0,
            "output_tokens_per_s": 120.5,
            "first_token_s": 0.25,
            "memory_bytes": 1 << 28,
        }
    ],
    "num_prompt_tokens": 256,
    "num_output_tokens": 64,
    "num_other_tokens": 7,
    "versions": {"openvino": "1", "openvino-genai": "2"},
}


@pytest.mark.django_db
class TestStoring:
    def a_model(self, state: EngineState) -> ServedModel:
        model = ServedModel.objects.create(name="m", folder=str(TINY_CHAT), options={"a": 1})
        digest = model.settings_digest
        EngineStatus.objects.create(model=model, state=state, settings_digest=digest)
        return model

    def test_a_result_is_kept_with_its_settings_and_versions(self) -> None:
        job = job_requests.measure(self.a_model(EngineState.READY))
        assert take_result(job, RESULT) == ""
        result = SpeedResult.objects.get()
        assert (result.options, result.device) == ({"a": 1}, "CPU")
        assert set(result.versions) == {"vinery", "openvino", "openvino-genai"}
        assert result.value(4, "output_tokens_per_s") == 120.5
        assert result.value(16, "output_tokens_per_s") is None
        assert ModelJob.objects.get().state == JobState.DONE

    def test_a_model_that_is_asleep_is_measured_and_one_that_loads_is_not(self) -> None:
        asleep = self.a_model(EngineState.ASLEEP)
        assert job_requests.measure(asleep).kind == JobKind.BENCH
        ModelJob.objects.all().delete()
        EngineStatus.objects.update(state=EngineState.LOADING)
        asleep.refresh_from_db()
        with pytest.raises(ValidationError, match="m is loading: load it, wait until it is ready"):
            job_requests.measure(asleep)
        assert not ModelJob.objects.exists()

    def test_the_oldest_results_are_deleted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(job_requests, "MAX_RESULTS", 2)
        model = self.a_model(EngineState.READY)
        job = job_requests.measure(model)
        for _ in range(3):
            job_requests._take_speed(job, RESULT)
        ids = list(SpeedResult.objects.values_list("pk", flat=True))
        assert len(ids) == 2
        assert ids[0] > ids[1] > min(ids) - 1
