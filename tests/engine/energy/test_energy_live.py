"""Real engines on a machine whose counters run: every joule is a request's or nobody's."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from serving.transport.messages import Accepted, Rejected, Submit, TokenOutput
from tests.engine.conftest import Gateway, StartEngine
from tests.engine.energy.counted import package, using

pytestmark = pytest.mark.live

WATTS = 40.0


async def energies(gateway: Gateway, *submits: Submit) -> dict[int, float]:
    """What each was told in all, when all have ended."""
    run = gateway.start(*submits)
    told = {submit.id: 0.0 for submit in submits}
    open_ids = set(told)
    while open_ids:
        for each in await run.next(60):
            match each:
                case TokenOutput():
                    assert each.energy_j is not None
                    told[each.id] += each.energy_j
                    if each.finish is not None:
                        open_ids.discard(each.id)
                case Rejected():
                    raise AssertionError(each.message)
                case Accepted():
                    pass
    return told


def asked(gateway: Gateway, max_new_tokens: int) -> Submit:
    return gateway.submit("Count to 100.", max_new_tokens=max_new_tokens, ignore_eos=True)


async def test_requests_and_idle_energy_are_the_counters(
    start_engine: StartEngine, tmp_path: Path
) -> None:
    zone = package(tmp_path / "sys")
    with using(zone, watts=WATTS):
        async with start_engine() as gateway:
            before_j, before = zone.energy_uj / 1e6, await gateway.client.ping(60)
            told = await energies(gateway, asked(gateway, 400), asked(gateway, 100))
            await asyncio.sleep(0.5)
            told |= await energies(gateway, asked(gateway, 200))
            await asyncio.sleep(0.3)
            used_j, after = zone.energy_uj / 1e6 - before_j, await gateway.client.ping(60)
    assert before.energy_j is not None
    assert after.energy_j is not None
    long, short, last = told.values()
    assert long > 1.5 * short > 0
    assert last > 0
    assert after.request_energy_j == pytest.approx(sum(told.values()), rel=1e-6)
    # What was counted since the last of ten readings in a second is not told yet.
    assert after.energy_j - before.energy_j == pytest.approx(used_j, abs=0.45 * WATTS)
    assert sum(told.values()) < used_j - 0.5 * WATTS


async def test_two_engines_do_not_count_the_same_joules(
    start_engine: StartEngine, tmp_path: Path
) -> None:
    zone = package(tmp_path / "sys")
    with using(zone, watts=WATTS):
        async with start_engine("a") as one, start_engine("b") as two:
            await asyncio.sleep(1.5)  # until they know of each other
            engines = (one, two)
            begun_j = [(await each.client.ping(60)).energy_j or 0 for each in engines]
            before_j = zone.energy_uj / 1e6
            both = await asyncio.gather(*(energies(each, asked(each, 600)) for each in engines))
            used_j = zone.energy_uj / 1e6 - before_j
            told_j = sum(sum(each.values()) for each in both)
            await asyncio.sleep(0.5)
            ended_j = [(await each.client.ping(60)).energy_j or 0 for each in engines]
            all_j = zone.energy_uj / 1e6 - before_j
    assert 0.7 * used_j < told_j < 1.1 * used_j
    assert sum(ended_j) - sum(begun_j) == pytest.approx(all_j, rel=0.1, abs=0.6 * WATTS)


async def test_a_machine_without_counters_tells_nothing(start_engine: StartEngine) -> None:
    async with start_engine() as gateway:
        submit = asked(gateway, 5)
        run = gateway.start(submit)
        while True:
            said = await run.next(60)
            assert all(each.energy_j is None for each in said if isinstance(each, TokenOutput))
            if any(isinstance(each, TokenOutput) and each.finish for each in said):
                break
        stats = await gateway.client.ping(60)
    assert (stats.energy_j, stats.request_energy_j) == (None, None)
