"""Starts an engine with other options for a measurement, beside the one that serves."""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any, Final

from vinery_serving.engine.config import EngineConfig
from vinery_serving.engine.option_parsing import parse_options
from vinery_serving.models.speed.measuring import Engine, MeasurementFailed
from vinery_serving.processes.child import ChildProcess
from vinery_serving.transport.client import EngineClient

_CONNECT_TIMEOUT_S: Final = 10.0
_END_TIMEOUT_S: Final = 5.0


@asynccontextmanager
async def trial_engine(
    folder: Path, device: str, options: dict[str, Any], max_context: int, timeout_s: float
) -> AsyncIterator[Engine]:
    """Run an engine until the block ends. Raises `MeasurementFailed` if it does not load."""
    with tempfile.TemporaryDirectory(prefix="vinery-trial-") as scratch:
        config = EngineConfig(
            name="trial",
            folder=folder,
            device=device,
            socket_path=Path(scratch) / "engine.sock",
            cache_dir=Path(scratch) / "cache",
            max_context=max_context,
            options=parse_options(options),
        )
        process = _start(config)
        client = EngineClient(config.socket_path)
        try:
            await process.write(config.to_line())
            await _wait_ready(process, timeout_s)
            client.open()
            await client.wait_connected(_CONNECT_TIMEOUT_S)
            yield Engine(client)
        finally:
            await client.close()
            await asyncio.shield(process.end(_END_TIMEOUT_S))


def _start(config: EngineConfig) -> ChildProcess:
    """The engine is in the process group of the job, with which the node ends it."""
    return ChildProcess(
        (sys.executable, "-m", "vinery_serving.engine", config.name),
        "trial",
        environment=dict(os.environ) | {"TMPDIR": str(config.socket_path.parent)},
        stdin=PIPE,
        stdout=PIPE,
        leads_group=False,
    )


async def _wait_ready(process: ChildProcess, timeout_s: float) -> None:
    """Raises `MeasurementFailed` with the reason of an engine that does not load."""
    output = await process.output()
    try:
        async with asyncio.timeout(timeout_s):
            line = await output.readline()
    except TimeoutError:
        raise MeasurementFailed(f"It did not load within {timeout_s:.0f} s.") from None
    report = json.loads(line) if line else {"event": "failed", "error": "The engine process ended."}
    if report["event"] != "ready":
        raise MeasurementFailed(" ".join(str(report["error"]).split()))
