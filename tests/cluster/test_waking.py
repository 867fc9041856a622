"""Requests of one host wait for a model that sleeps on another: the database tells its node."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError

from vinery_accounts.base.connections import giving_back
from vinery_serving.models.engine_status import EngineState, EngineStatus
from vinery_serving.models.host_rows import Host, Placement
from vinery_serving.models.models import ServedModel
from vinery_serving.node import reconciler, status
from vinery_serving.node.scheduler import EngineScheduler
from vinery_serving.transport.handshake import socket_key
from vinery_serving.transport.sockets import node_socket
from vinery_serving.transport.waiting import Wait, WaitingRequests

pytestmark = [pytest.mark.stores, pytest.mark.django_db(transaction=True)]
WITHIN_S = 120.0


@pytest.fixture
def model() -> ServedModel:
    found = ServedModel.objects.create(name="m", folder="/models/m")
    EngineStatus.objects.create(model=found, state=EngineState.ASLEEP)
    return found


def num_waiting() -> int:
    return EngineStatus.objects.get().num_waiting_to_load


async def until_stored(number: int) -> None:
    async with asyncio.timeout(WITHIN_S):
        while await asyncio.to_thread(giving_back(num_waiting)) != number:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def test_a_wait_is_stored_again_after_another_host_has_ended_its_own_and_ends_after_an_outage(
    model: ServedModel, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.VINERY_RUN_DIR = tmp_path
    for name in ("_WAITS_AGAIN_S", "_WAITS_INTERVAL_S"):
        monkeypatch.setattr(reconciler, name, 0.05)
    change, failures = status._change, [OperationalError("the database is away")]

    def change_later(*words: Any) -> None:
        if failures:
            raise failures.pop()
        change(*words)

    async def wait() -> None:
        following = asyncio.create_task(reconciler._follow_waits(EngineScheduler({}, 0)))
        key = socket_key(settings.VINERY_SOCKET_SECRET, node_socket(tmp_path))
        waiting = WaitingRequests(tmp_path, key)
        with waiting.of(model.pk):
            await until_stored(1)
            await status.report_waits({model.pk: Wait(0, 0.0)})  # by another host
            await until_stored(1)
            monkeypatch.setattr(status, "_change", change_later)
        await until_stored(0)
        assert not failures
        await waiting.close()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    asyncio.run(wait())


@pytest.mark.several_hosts
def test_a_node_that_starts_forgets_the_waits_of_the_last_one_also_for_models_of_other_hosts(
    model: ServedModel,
) -> None:
    other = Host.objects.create(name="mars")
    Placement.objects.create(model=model, replica=0, host=other, state=EngineState.ASLEEP)
    EngineStatus.objects.update(num_waiting_to_load=1)
    status.reset(())
    assert num_waiting() == 0
    assert EngineStatus.objects.get().state == EngineState.ASLEEP
