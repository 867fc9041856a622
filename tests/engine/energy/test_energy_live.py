"""Real engines with running counters: every joule is a request's or idle energy."""

import asyncio
from pathlib import Path

import psutil
import pytest

from tests.convert.waiting import until
from tests.engine.conftest import TIMEOUT_S, Gateway, OwnGateway, StartEngine
from tests.engine.energy.counter_files import package, using
from vinery_serving.transport.messages import EngineStats, Submit

pytestmark = pytest.mark.live

WATTS = 40.0


async def energies(gateway: Gateway, *submits: Submit) -> list[float]:
    """Return the joules that each generation was sent, when all have ended."""
    answers = await gateway.ask(*submits)
    assert {each.finish for each in answers} == {"length"}
    return [sum(each.energies_j) for each in answers]


def asked(gateway: Gateway, max_new_tokens: int) -> Submit:
    return gateway.submit("Count to 100.", max_new_tokens=max_new_tokens, ignore_eos=True)


async def counted(used_j: float, *gateways: Gateway, rel: float) -> list[EngineStats]:
    """Return the stats once the engines have read all of a counter that has stopped."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            stats = [await each.stats() for each in gateways]
            if sum(each.energy_j or 0 for each in stats) == pytest.approx(used_j, rel=rel):
                return stats
            await asyncio.sleep(0.1)


async def test_requests_and_idle_energy_are_all(start_engine: StartEngine, tmp_path: Path) -> None:
    zone = package(tmp_path / "sys")
    async with start_engine() as gateway:
        with using(zone, watts=WATTS):
            long, short = await energies(gateway, asked(gateway, 200), asked(gateway, 50))
            idle_uj = zone.energy_uj + 0.6e6 * WATTS
            await until(lambda: zone.energy_uj > idle_uj)
            (last,) = await energies(gateway, asked(gateway, 100))
        used_j = zone.energy_uj / 1e6
        (stats,) = await counted(used_j, gateway, rel=1e-6)
    reported_j = long + short + last
    assert long > 1.5 * short > 0
    assert last > 0
    assert stats.request_energy_j == pytest.approx(reported_j, rel=1e-6)
    assert reported_j < used_j - 0.5 * WATTS


def num_known(gateway: OwnGateway) -> int:
    """Of how many engines this one reads how long they were busy."""
    files = psutil.Process(gateway.process.pid).open_files()
    return sum(file.path.endswith(".busy") for file in files)


async def test_two_engines_count_no_joule_twice(start_engine: StartEngine, tmp_path: Path) -> None:
    zone = package(tmp_path / "sys")
    async with start_engine("a") as one, start_engine("b") as two:
        await until(lambda: num_known(one) == num_known(two) == 2)
        with using(zone, watts=WATTS):
            both = await asyncio.gather(*(energies(each, asked(each, 400)) for each in (one, two)))
        used_j = zone.energy_uj / 1e6
        await counted(used_j, one, two, rel=0.1)
    reported_j = [sum(each) for each in both]
    assert min(reported_j) > 0
    # Twice would be 2. The counter of this test stands still while its process waits for a core,
    # and then jumps: what is reported before the next sample is estimated from the jump.
    assert sum(reported_j) < 1.5 * used_j


async def test_a_host_without_counters_reports_nothing(gateway: Gateway) -> None:
    (answer,) = await gateway.ask(asked(gateway, 5))
    stats = await gateway.stats()
    assert set(answer.energies_j) == {None}
    assert (stats.energy_j, stats.request_energy_j) == (None, None)
