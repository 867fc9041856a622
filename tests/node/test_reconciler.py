"""The node reads which models should be loaded, and only after a commit."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.conftest import REPOSITORY
from vinery_serving.models.engine_status import EngineState, EngineStatus
from vinery_serving.models.models import ServedModel
from vinery_serving.node import keeper, status
from vinery_serving.node.load_errors import LoadAttempts
from vinery_serving.node.reconciler import _read_specs
from vinery_serving.node.status import Subject

pytestmark = pytest.mark.stores
TINY_CHAT = REPOSITORY / "models" / "tiny-chat"


def in_another_process(name: str) -> None:
    """A thread has a connection of its own."""

    def add() -> None:
        ServedModel.objects.create(name=name, folder="/models/m", options={"max_running": 3})
        connection.close()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(add).result()


@pytest.mark.django_db(transaction=True)
def test_models_are_read_after_a_commit_alone() -> None:
    connection.close()  # an old one would be replaced between two looks
    in_another_process("m")
    state, specs = _read_specs(None)
    assert [(each.name, json.loads(each.options)) for each in specs] == [("m", {"max_running": 3})]

    if connection.vendor == "sqlite":  # other tests write to a server
        with CaptureQueriesContext(connection) as queries:
            assert _read_specs(state) == (state, None)
        assert len(queries) == 1

    in_another_process("n")
    _, specs = _read_specs(state)
    assert {each.name for each in specs} == {"m", "n"}


@pytest.mark.django_db(transaction=True)
def test_a_test_with_pictures_is_due_until_it_has_ended_and_only_a_failure_stands() -> None:
    asked_at = timezone.now()
    model = ServedModel.objects.create(name="m", folder="/models/m", test_asked_at=asked_at)
    EngineStatus.objects.create(model=model, state=EngineState.READY)
    first, second = (Subject(model.pk, "", number, f"GPU.{number}") for number in range(2))

    def after(subject: Subject, failure: str) -> str:
        asyncio.run(status.report_pictures(subject, failure, asked_at))
        return EngineStatus.objects.get().last_error

    _, specs = _read_specs(None)
    assert [asked.test_asked_at for asked in specs.values()] == [asked_at]
    alike = "The self-test with pictures failed on GPU.0: Red and blue look alike."
    assert after(first, "Red and blue look alike.") == alike
    _, specs = _read_specs(None)
    assert [asked.test_asked_at for asked in specs.values()] == [None]

    assert after(second, "") == alike
    assert after(first, "") == ""
    EngineStatus.objects.update(last_error="It does not fit.")
    assert after(first, "") == "It does not fit."

    for failure, error in (("Red and blue look alike.", alike), ("", "")):
        ready = status.report(first, EngineState.READY, 0, LoadAttempts(), picture_failure=failure)
        asyncio.run(ready)
        assert EngineStatus.objects.get().last_error == error


@pytest.mark.django_db(transaction=True)
def test_replicas_on_other_devices_keep_other_compiled_graphs() -> None:
    replicas = {"num_replicas": 4, "replica_devices": ["CPU", "GPU.1"]}
    ServedModel.objects.create(name="m", folder=str(TINY_CHAT), **replicas)
    _, specs = _read_specs(None)
    ordered = sorted(specs, key=lambda each: each.replica)
    configs = [keeper._new_config(each) for each in ordered]

    assert [each.device for each in configs] == ["CPU", "GPU.1", "CPU", "GPU.1"]
    assert configs[0].cache_dir == configs[2].cache_dir != configs[1].cache_dir
    assert configs[1].cache_dir == configs[3].cache_dir
    assert len({each.socket_path for each in configs}) == 4
