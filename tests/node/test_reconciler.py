"""The node reads which models should be loaded, and only after a commit."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.conftest import REPOSITORY
from vinery_serving.catalog.engine_status import EngineStatus
from vinery_serving.catalog.models import ServedModel
from vinery_serving.node import keeper, status
from vinery_serving.node.engine_process import PictureReport
from vinery_serving.node.reconciler import _read_specs

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
def test_a_test_with_pictures_is_due_until_its_result_is_written() -> None:
    later = timezone.now() + timedelta(minutes=5)  # by the clock of another host
    model = ServedModel.objects.create(name="m", folder="/models/m", tested_at=later)
    _, specs = _read_specs(None)
    assert [asked.test_asked_at for asked in specs.values()] == [later]

    report = PictureReport("alike", "Red and blue look alike.", "GPU")
    asyncio.run(status.report_pictures(model.pk, report, later))

    _, specs = _read_specs(None)
    assert [asked.test_asked_at for asked in specs.values()] == [None]
    stored = EngineStatus.objects.get()
    assert (stored.picture_verdict, stored.picture_test_device) == ("alike", "GPU")
    assert stored.picture_test == "Red and blue look alike."


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
