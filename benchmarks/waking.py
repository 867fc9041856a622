"""`python -m benchmarks.waking [--model FOLDER] [--rounds N]`: how soon a model is awake.

In each round an engine process is started in three ways, one after the other:

- `cold`: as when a registered model is loaded for the first time. Nothing is kept of it, and no
  spare process waits.
- `kept`: as after a restart. Its copy and its compiled graph are kept.
- `woken`: as a node wakes a model that has run before, in a spare process with all imports.

Time is from the decision to the first token that the engine has generated for itself. Weights are
in the page cache in all of them, so a slow disk shows in none. CPU time is that of the engine until
then. Each way is compared with the cold start of its round, and the median of these parts counts.

Without a folder, it measures the reference model and random ones of 0.1 and 0.5 billion parameters.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Final

import psutil

from benchmarks.progress import show
from benchmarks.random_models import half_billion, small
from vinery_serving.engine.config import EngineConfig
from vinery_serving.engine.options import EngineOptions
from vinery_serving.node.engine_process import EngineProcess
from vinery_serving.node.starting import SpareEngines
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


_Starts = dict[str, list[Start]]  # by way


async def main(folder: Path, num_rounds: int) -> None:
    """Print the median times of all ways, and which part of a cold start they are."""
    starts: _Starts = {way: [] for way in _WAYS}
    with tempfile.TemporaryDirectory() as home:
        config = _config_of(folder, Path(home))
        for _ in range(num_rounds):
            shutil.rmtree(config.cache_dir, ignore_errors=True)
            for way in _WAYS:
                starts[way].append(await _start(config, is_spare=way == "woken"))
    show(f"{folder.name}: {num_rounds} rounds")
    for way in _WAYS:
        took, cpu = (_line(starts, way, attrgetter(name)) for name in ("took_s", "cpu_s"))
        show(f"  {way:<6} {took}  CPU {cpu}")
    if _part(starts, "woken", attrgetter("took_s")) > _AIM:
        show(f"  above the aim of {_AIM:.0%}")


def _line(starts: _Starts, way: str, time_of: Callable[[Start], float]) -> str:
    return f"{median(map(time_of, starts[way])):6.2f} s ({_part(starts, way, time_of):4.0%})"


def _part(starts: _Starts, way: str, time_of: Callable[[Start], float]) -> float:
    """The median part of the cold start of the same round."""
    pairs = zip(starts[way], starts["cold"], strict=True)
    return median(time_of(each) / time_of(cold) for each, cold in pairs)


async def _start(config: EngineConfig, *, is_spare: bool) -> Start:
    spares = SpareEngines()
    if is_spare:
        spares.fill()
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
    return [given] if given is not None else [_TINY_CHAT, small(_CACHE), half_billion(_CACHE)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    for each in _folders(arguments.model):
        asyncio.run(main(each, arguments.rounds))
