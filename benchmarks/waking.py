"""`python -m benchmarks.waking [--model FOLDER] [--rounds N]`: how soon a model is awake.

An engine process is started in three ways, in turns: cold, without what earlier starts have kept;
with that; and as a node wakes a model, from a process that has imported everything. Time is from
the decision to the first token that the engine has generated for itself. Weights are in the page
cache in all of them, so a slow disk shows in none. CPU time is that of the engine until then.

Without a folder, it measures the reference model and a random one of 0.1 billion parameters.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import psutil

from benchmarks.progress import show
from benchmarks.random_models import small
from vinery_serving.engine.config import EngineConfig
from vinery_serving.engine.options import EngineOptions
from vinery_serving.node.engine_process import EngineProcess
from vinery_serving.node.spare import SpareEngines
from vinery_serving.prompting.folder import ModelFolder

_TINY_CHAT: Final = Path(__file__).resolve().parents[1] / "models" / "tiny-chat"
_CACHE: Final = Path(tempfile.gettempdir()) / "vinery-bench-models"
_WAYS: Final = ("cold", "kept", "woken")
_AIM: Final = 0.4  # of a cold start


@dataclass(frozen=True)
class Start:
    """One start. Times are in seconds."""

    took_s: float
    cpu_s: float


async def main(folder: Path, num_rounds: int) -> None:
    """Print the medians of all ways."""
    starts: dict[str, list[Start]] = {way: [] for way in _WAYS}
    with tempfile.TemporaryDirectory() as home:
        config = _config_of(folder, Path(home))
        for _ in range(num_rounds):
            shutil.rmtree(config.cache_dir, ignore_errors=True)
            for way in _WAYS:
                starts[way].append(await _start(config, is_spare=way == "woken"))
    took_s = {way: median(each.took_s for each in starts[way]) for way in _WAYS}
    cpu_s = {way: median(each.cpu_s for each in starts[way]) for way in _WAYS}
    show(f"{folder.name}: {num_rounds} rounds")
    for way in _WAYS:
        part = took_s[way] / took_s["cold"]
        show(f"  {way:<6} {took_s[way]:6.2f} s ({part:4.0%})  CPU {cpu_s[way]:6.2f} s")
    if took_s["woken"] > _AIM * took_s["cold"]:
        show(f"  above the aim of {_AIM:.0%}")


async def _start(config: EngineConfig, *, is_spare: bool) -> Start:
    spares = SpareEngines()
    if is_spare:
        await spares.fill()
        await asyncio.sleep(3.0)  # it imports meanwhile
    engine = EngineProcess(config, spares=spares)
    spare_cpu_s = 0.0 if spares.pid is None else _cpu_s(spares.pid)
    began_at = time.perf_counter()
    try:
        await engine.start()
        took_s = time.perf_counter() - began_at
        assert engine.pid is not None
        return Start(took_s, _cpu_s(engine.pid) - spare_cpu_s)
    finally:
        await engine.end()
        await spares.close()


def _cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def _config_of(folder: Path, home: Path) -> EngineConfig:
    return EngineConfig(
        name="waking",
        folder=folder,
        device="CPU",
        socket_path=home / "e.sock",
        cache_dir=home / "cache",
        max_context=ModelFolder.read(folder).max_context or 0,
        options=EngineOptions(),
    )


def _folders(given: Path | None) -> Sequence[Path]:
    return [given] if given is not None else [_TINY_CHAT, small(_CACHE)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    for each in _folders(arguments.model):
        asyncio.run(main(each, arguments.rounds))
