"""The job `tune`: looks for better engine options of a model, in engines of its own beside the
serving one.

    {"folder": "/models/tiny-chat", "device": "CPU", "options": {}, "max_context": 2048,
     "time_limit_s": 300, "allow_other_answers": false}
"""

import asyncio
import json
import os
import secrets
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE
from typing import Any, Final

import msgspec
import psutil

from vinery_serving.engine.config import EngineConfig, needs_of
from vinery_serving.engine.option_parsing import parse_options
from vinery_serving.models.jobs import JobDocument, JobFailed, Reporter
from vinery_serving.models.speed.bench_job import encode_of
from vinery_serving.models.speed.measuring import Engine, MeasurementFailed
from vinery_serving.models.speed.tuning import Tuner
from vinery_serving.processes.calls import Act
from vinery_serving.processes.child import ChildProcess
from vinery_serving.processes.confine import Needs
from vinery_serving.transport.client import EngineClient, EngineDisconnected
from vinery_serving.transport.sockets import UnixAddress

_NUM_ENGINES: Final = 2
_LOAD_TIMEOUT_S: Final = 600.0


def run(document: JobDocument, reporter: Reporter) -> Mapping[str, Any]:
    """Raises JobFailed."""
    asked = document.parameters
    folder, device = Path(asked["folder"]), str(asked["device"])
    _check_memory(folder, device)

    def start(options: Mapping[str, Any]) -> AbstractAsyncContextManager[Engine]:
        context = int(asked["max_context"])
        return trial_engine(folder, device, dict(options), context, _LOAD_TIMEOUT_S)

    tuner = Tuner(
        start=start,
        encode=encode_of(folder),
        present=asked["options"],
        device=device,
        is_vision=(folder / "openvino_text_embeddings_model.xml").exists(),
        allows_other_answers=bool(asked.get("allow_other_answers")),
        time_limit_s=float(asked["time_limit_s"]),
        report=reporter.progress,
    )
    try:
        tuning = asyncio.run(tuner.run())
    except MeasurementFailed as error:
        raise JobFailed(f"The present options cannot be measured: {error}") from error
    except EngineDisconnected:
        raise JobFailed("The engine with the present options ended.") from None
    result: dict[str, Any] = msgspec.to_builtins(tuning, str_keys=True)
    return result


def needs(document: JobDocument) -> Needs:
    """What an engine needs, and to start it: the engines of the trials may then do less."""
    asked = document.parameters
    scratch = Path(tempfile.gettempdir())
    config = _config(Path(asked["folder"]), asked["device"], asked["options"], 0, scratch)
    acts, runs = frozenset(Act) - {Act.OWN}, (Path(sys.executable),)
    return replace(needs_of(config), acts=acts, families=(socket.AF_UNIX,), runs=runs)


def _check_memory(folder: Path, device: str) -> None:
    """Raises JobFailed if the engines of the trials do not fit into the free memory."""
    if device != "CPU":
        return
    num_bytes = sum(file.stat().st_size for file in folder.glob("*.bin"))
    # An engine with a small cache: a multiple of the weights, and the process.
    needed = _NUM_ENGINES * (int(1.3 * num_bytes) + (400 << 20))
    available = psutil.virtual_memory().available
    if available < needed:
        raise JobFailed(
            f"Trials need {needed / 2**30:.1f} GB of memory for {_NUM_ENGINES} engines, and "
            f"{available / 2**30:.1f} GB are free. Unload this model or others, and tune again."
        )


_END_TIMEOUT_S: Final = 5.0


@asynccontextmanager
async def trial_engine(
    folder: Path, device: str, options: dict[str, Any], max_context: int, timeout_s: float
) -> AsyncIterator[Engine]:
    """Run an engine until the block ends. Raises `MeasurementFailed` if it does not load."""
    with tempfile.TemporaryDirectory(prefix="vinery-trial-") as scratch:
        config = _config(folder, device, options, max_context, Path(scratch))
        process = ChildProcess(
            (sys.executable, "-m", "vinery_serving.engine", config.name),
            "trial",
            environment=dict(os.environ) | {"TMPDIR": scratch},
            stdin=PIPE,
            stdout=PIPE,
            leads_group=False,  # the node ends the process group of the job
        )
        client = EngineClient(UnixAddress(config.socket_path), config.socket_key)
        try:
            await process.write(config.to_line())
            await _wait_ready(process, timeout_s)
            client.open()
            await client.wait_connected(10.0)
            yield Engine(client)
        finally:
            await client.close()
            await asyncio.shield(process.end(_END_TIMEOUT_S))


def _config(
    folder: Path, device: str, options: dict[str, Any], max_context: int, scratch: Path
) -> EngineConfig:
    return EngineConfig(
        name="trial",
        folder=folder,
        device=device,
        socket_path=scratch / "engine.sock",
        socket_key=secrets.token_bytes(32),
        cache_dir=scratch,
        max_context=max_context,
        options=parse_options({**options, "logits_processors": []}),  # no trial asks for them
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
