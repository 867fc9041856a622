"""The job `bench`: measures the engine of a served model through its socket. A model that is
asleep wakes for it, as for a request.

{"model_id": 3, "settings_digest": "0a1b...", "folder": "/models/tiny-chat"}
"""

import asyncio
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from vinery_serving.models.jobs.progress import JobDocument, JobFailed, Reporter
from vinery_serving.models.speed.card import SpeedCard, measure
from vinery_serving.models.speed.measuring import Engine, MeasurementFailed
from vinery_serving.models.speed.texts import Encode
from vinery_serving.prompting.folder import ModelFolder, UnusableFolder
from vinery_serving.prompting.tokenizer import load_tokenizer
from vinery_serving.transport.client import EngineClient, EngineDisconnected
from vinery_serving.transport.sockets import EngineAddress, engine_socket, settings_key
from vinery_serving.transport.waiting import WaitingRequests

# A model that is asleep wakes first, and may have to wait for memory.
_CONNECT_TIMEOUT_S: Final = 600.0
_PROMPTS_OF_A_JOB: Final = 10_000
_PACKAGES: Final = ("openvino", "openvino-genai")


def run(document: JobDocument, reporter: Reporter) -> Mapping[str, Any]:
    """Raises JobFailed."""
    encode = encode_of(Path(document.parameters["folder"]))
    key = settings_key(document.parameters["settings_digest"])
    address = EngineAddress(document.parameters["model_id"], key)
    try:
        card = asyncio.run(_measure(document, address, encode, reporter))
    except MeasurementFailed as error:
        raise JobFailed(str(error)) from error
    except (EngineDisconnected, TimeoutError):
        raise JobFailed(
            "The engine ended or did not answer. Load the model, then measure again."
        ) from None
    return {**card.as_json(), "versions": {name: metadata.version(name) for name in _PACKAGES}}


def encode_of(folder: Path) -> Encode:
    """Return the tokenizer of a model. Raises JobFailed."""
    try:
        return load_tokenizer(ModelFolder.read(folder)).encode
    except UnusableFolder as error:
        raise JobFailed(str(error)) from error


async def _measure(
    document: JobDocument, address: EngineAddress, encode: Encode, reporter: Reporter
) -> SpeedCard:
    run_dir = document.home / "run"
    client, waiting = EngineClient(engine_socket(run_dir, address)), WaitingRequests(run_dir)
    client.open()
    try:
        reporter.progress("waiting for the model")
        with waiting.of(address.model_id):
            await client.wait_connected(_CONNECT_TIMEOUT_S)

        def report(streams: int) -> None:
            reporter.progress(f"measuring {streams} streams" if streams > 1 else "measuring")

        seed = document.job_id * _PROMPTS_OF_A_JOB
        return await measure(Engine(client), encode, report, seed=seed)
    finally:
        await waiting.close()
        await client.close()
