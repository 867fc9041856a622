"""The node reads which models should be loaded, and only after a commit."""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import OperationalError, connection, connections
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.conftest import REPOSITORY
from vinery_accounts.base.change_signal import commit_state
from vinery_serving.cluster.lease import HostLease, Lease
from vinery_serving.models.engine_status import EngineState, EngineStatus
from vinery_serving.models.models import ServedModel
from vinery_serving.node import keeper, reconciler, status
from vinery_serving.node.fit import EngineFacts
from vinery_serving.node.load_errors import LoadAttempts
from vinery_serving.node.reconciler import WantedModels, _read_specs
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
    configs = [keeper._new_config(each, EngineFacts()) for each in ordered]

    assert [each.device for each in configs] == ["CPU", "GPU.1", "CPU", "GPU.1"]
    assert configs[0].cache_dir == configs[2].cache_dir != configs[1].cache_dir
    assert configs[1].cache_dir == configs[3].cache_dir
    assert len({each.socket_path for each in configs}) == 4


@pytest.fixture
def outage(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Whether the database is away: the only item."""
    is_away = [False]

    def fail_while_away(*_: object) -> object:
        if is_away[0]:
            raise OperationalError("the server is away")
        return commit_state()

    for module, name in ((reconciler, "commit_state"), (status, "_write")):
        work = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, work=work: fail_while_away() and work(*a))
    yield is_away
    status._unwritten.clear()


@pytest.mark.django_db(transaction=True)
def test_a_node_that_starts_without_the_database_serves_what_the_last_node_read(
    settings: Any, tmp_path: Path, outage: list[bool]
) -> None:
    settings.VINERY_CACHE_DIR = tmp_path
    model = ServedModel.objects.create(name="m", folder="/models/m", idle_s=7)
    EngineStatus.objects.create(model=model, loaded_bytes=5, peak_bytes=6)

    async def start() -> None:
        known = await WantedModels(set()).read()
        assert {each.name for each in known} == {"m"}

        outage[0] = True
        node = WantedModels(set())
        assert await node.read() == known
        assert await node.read() is None, "they were said"
        assert not node.has_read.is_set()
        subject = Subject(model.pk, model.settings_digest)
        await status.report(subject, EngineState.READY, 0, LoadAttempts(), max_context=512)
        await status.report(subject, EngineState.LOADING, 1, LoadAttempts())
        assert await asyncio.to_thread(state) == EngineState.UNLOADED

        outage[0] = False
        assert await node.read() == known
        assert await asyncio.to_thread(state) == EngineState.LOADING
        assert await asyncio.to_thread(lambda: EngineStatus.objects.get().max_context) == 512
        await status.report(subject, EngineState.UNLOADED, 0, LoadAttempts())

    def state() -> str:
        try:
            return EngineStatus.objects.get().state
        finally:
            connections.close_all()

    asyncio.run(start())


@pytest.mark.django_db(transaction=True)
def test_a_node_waits_while_another_one_uses_the_database(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    moon = "vinery node on moon"
    leases = [Lease(moon, is_leader=False), Lease(moon, is_leader=False), Lease()]
    monkeypatch.setattr(HostLease, "renew", lambda _: leases.pop(0))
    ServedModel.objects.create(name="m", folder="/models/m")

    async def start() -> None:
        node = WantedModels(set())
        assert await node.read() is None
        assert await node.read() is None
        assert not node.leads.is_set(), "its jobs are those of the other node"
        assert [each.name for each in await node.read()] == ["m"]

    asyncio.run(start())
    [record] = [each for each in caplog.records if each.levelname == "ERROR"]
    assert "another node uses this database" in record.getMessage()
    assert "moon" in record.getMessage()


@pytest.mark.django_db(transaction=True)
def test_requests_that_wait_on_other_hosts_wake_a_model() -> None:
    model = ServedModel.objects.create(name="m", folder="/models/m")
    since = timezone.now()
    EngineStatus.objects.create(model=model, num_waiting_to_load=2, waiting_since=since)
    shared = reconciler._live_settings(model, is_here=True, is_shared=True)
    assert shared.waited_since == since
    alone = reconciler._live_settings(model, is_here=True, is_shared=False)
    assert alone.waited_since is None, "the web processes of this host say so themselves"


@pytest.mark.django_db(transaction=True)
def test_a_logits_processor_runs_only_if_a_setting_of_the_machine_names_it(settings: Any) -> None:
    """An admin key changes models, and may not choose code."""
    name = "tests.system.logits_processors:only_token"
    row = ServedModel(name="m", folder=str(TINY_CHAT), options={"logits_processors": [name]})
    settings.VINERY_LOGITS_PROCESSORS = ["package:other"]
    with pytest.raises(ValidationError) as refused:
        row.clean_fields()
    (text,) = refused.value.message_dict["options"]
    assert name in text
    assert "VINERY_LOGITS_PROCESSORS, which has package:other." in text

    settings.VINERY_LOGITS_PROCESSORS = ["package:other", name]
    row.clean_fields()
    row.save()
    _, specs = _read_specs(None)
    (spec,) = specs
    assert keeper._new_config(spec, EngineFacts()).options.logits_processors == [name]
    settings.VINERY_LOGITS_PROCESSORS = []
    with pytest.raises(ValueError, match="is not allowed here"):
        keeper._new_config(spec, EngineFacts())

    settings.VINERY_LOGITS_PROCESSORS = [name]
    for is_passing, kind in ((False, ValueError), (True, OSError)):
        with pytest.raises(kind, match="endless"):
            keeper._new_config(spec, EngineFacts(error="endless", is_passing=is_passing))
