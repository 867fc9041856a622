"""A spare process with the imports of engines: the next model gets it, and none is left over."""

import asyncio
from pathlib import Path

import psutil
import pytest
from msgspec import structs

from tests.engine.conftest import engine_config
from vinery_serving.engine.config import EngineConfig, EngineLog
from vinery_serving.node import engine_process
from vinery_serving.node.engine_process import EngineProcess, SpareEngines

pytestmark = pytest.mark.live


def config_of(home: Path) -> EngineConfig:
    log = EngineLog(path=home / "engine.log")
    return structs.replace(engine_config(home, "e", {"num_threads": 1}), log=log)


async def test_a_model_loads_in_the_process_that_is_there_and_the_next_anew(tmp_path: Path) -> None:
    spares = SpareEngines()
    spares.fill()
    pid = spares.pid
    assert pid is not None
    for is_spare in (True, False):
        engine = EngineProcess(config_of(tmp_path), spares=spares)
        try:
            await engine.start()
            assert (engine.pid == pid) is is_spare
            assert engine.pid is not None
            temporary = psutil.Process(engine.pid).open_files()
            assert (tmp_path / "engine.log") in {Path(each.path) for each in temporary}
        finally:
            await engine.end()
    assert "ready model=tiny-chat" in (tmp_path / "engine.log").read_text()
    assert not psutil.pid_exists(pid)


async def test_a_killed_process_is_replaced_and_none_is_left_when_none_is_wanted(monkeypatch):
    monkeypatch.setattr(engine_process, "_CALM_S", 0.0)
    spares, pids = SpareEngines(), set[int]()
    async with asyncio.timeout(60):
        while len(pids) < 2:
            spares.want(is_wanted=True)
            await asyncio.sleep(0.01)
            if spares.pid is not None and spares.pid not in pids:
                pids.add(spares.pid)
                if len(pids) == 1:
                    psutil.Process(spares.pid).kill()
        while any(map(psutil.pid_exists, pids)):
            spares.want(is_wanted=False)
            await asyncio.sleep(0.01)
    assert spares.take() is None

    spares.fill()
    assert (pid := spares.pid) is not None
    await spares.close()
    assert not psutil.pid_exists(pid)
