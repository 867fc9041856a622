"""The job `bench`: the speed card of a served model, measured through the socket of its engine with
several numbers of streams, one after the other. A sleeping model wakes, as for a request.

    {"model_id": 3, "settings_digest": "0a1b...", "folder": "/models/tiny-chat"}
"""

import asyncio
import socket
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import msgspec

from vinery_serving.models.jobs import JobDocument, JobFailed, Reporter
from vinery_serving.models.speed import measuring
from vinery_serving.processes.calls import Act
from vinery_serving.processes.confine import Needs
from vinery_serving.prompting.folder import ModelFolder, UnusableFolder
from vinery_serving.prompting.tokenizer import load_tokenizer
from vinery_serving.transport.client import EngineClient, EngineDisconnected
from vinery_serving.transport.messages import Hello
from vinery_serving.transport.sockets import EngineAddress, UnixAddress, engine_socket, settings_key
from vinery_serving.transport.waiting import WaitingRequests

STREAMS: Final = (1, 4, 16)
_PROMPT_TOKENS: Final = 256
_OUTPUT_TOKENS: Final = 64
_WARM_UP_TOKENS: Final = 8
_PING_TIMEOUT_S: Final = 60.0


class SpeedPoint(msgspec.Struct, frozen=True):
    """The speed with one number of streams. Tokens per second are of all streams together."""

    streams: int
    prompt_tokens_per_s: float
    output_tokens_per_s: float
    first_token_s: float  # the median
    memory_bytes: int  # of the engine's process

    @classmethod
    def of(cls, run: measuring.Run, pid: int) -> "SpeedPoint":
        return cls(
            streams=len(run.answers),
            prompt_tokens_per_s=round(run.prompt_tokens_per_s, 2),
            output_tokens_per_s=round(run.output_tokens_per_s, 2),
            first_token_s=round(run.first_token_s, 4),
            memory_bytes=measuring.memory_bytes(pid),
        )


class SpeedCard(msgspec.Struct, frozen=True):
    points: tuple[SpeedPoint, ...]
    num_prompt_tokens: int  # of each request
    num_output_tokens: int
    num_other_tokens: int  # that clients used meanwhile: they made the measured requests slower


async def measure(
    engine: measuring.Engine,
    encode: measuring.Encode,
    report: Callable[[int], object],
    *,
    seed: int,
) -> SpeedCard:
    """Measure an engine beside its other requests. `report` gets each number of streams. Another
    `seed` gives other prompts, so that none is in the prefix cache.

    Raises `MeasurementFailed`, EngineDisconnected and TimeoutError.
    """
    hello = engine.client.hello
    assert hello is not None
    num_prompt, num_output = _lengths(hello)
    before = (await engine.client.ping(_PING_TIMEOUT_S)).tokens.num_output_tokens
    await engine.run([measuring.prompt_ids(encode, seed, num_prompt)], _WARM_UP_TOKENS)
    points = []
    for streams in STREAMS:
        if streams > hello.max_running:
            break
        report(streams)
        first = seed + 100 * streams
        prompts = [measuring.prompt_ids(encode, first + at, num_prompt) for at in range(streams)]
        points.append(SpeedPoint.of(await engine.run(prompts, num_output), hello.pid))
    after = (await engine.client.ping(_PING_TIMEOUT_S)).tokens.num_output_tokens
    num_others = max(0, after - before - engine.num_own_tokens)
    return SpeedCard(tuple(points), num_prompt, num_output, num_others)


def _lengths(hello: Hello) -> tuple[int, int]:
    """Return the tokens of a prompt and of an output; less for a short context."""
    room = hello.max_context or _PROMPT_TOKENS * 2
    num_output = min(_OUTPUT_TOKENS, room // 4)
    num_prompt = min(_PROMPT_TOKENS, room // 2)
    if min(num_output, num_prompt) < 1:
        raise measuring.MeasurementFailed(
            f"A context of {hello.max_context} tokens is too short to measure."
        )
    return num_prompt, num_output


# A model that is asleep wakes first, and may have to wait for memory.
_CONNECT_TIMEOUT_S: Final = 600.0
_PACKAGES: Final = ("openvino", "openvino-genai")


def run(document: JobDocument, reporter: Reporter) -> Mapping[str, Any]:
    """Raises JobFailed."""
    encode = encode_of(Path(document.parameters["folder"]))
    key = settings_key(document.parameters["settings_digest"])
    address = EngineAddress(document.parameters["model_id"], key)
    try:
        card = asyncio.run(_measure_model(document, address, encode, reporter))
    except measuring.MeasurementFailed as error:
        raise JobFailed(str(error)) from error
    except (EngineDisconnected, TimeoutError):
        raise JobFailed(
            "The engine ended or did not answer. Load the model, then measure again."
        ) from None
    versions = {name: metadata.version(name) for name in _PACKAGES}
    return {**msgspec.to_builtins(card), "versions": versions}


def needs(document: JobDocument) -> Needs:
    """A measurement connects to the sockets of its engine and node."""
    folder, run_dir = Path(document.parameters["folder"]), document.home / "run"
    return Needs(
        reads=(folder, run_dir, Path("/proc"), Path("/sys")),
        acts=frozenset((Act.CONNECT,)),
        families=(socket.AF_UNIX,),
        descriptors=None,
    )


def encode_of(folder: Path) -> measuring.Encode:
    try:
        return load_tokenizer(ModelFolder.read(folder)).encode
    except UnusableFolder as error:
        raise JobFailed(str(error)) from error


async def _measure_model(
    document: JobDocument, address: EngineAddress, encode: measuring.Encode, reporter: Reporter
) -> SpeedCard:
    run_dir = document.home / "run"
    client = EngineClient(UnixAddress(engine_socket(run_dir, address)), document.engine_key)
    waiting = WaitingRequests(run_dir, document.node_key)
    client.open()
    try:
        reporter.progress("waiting for the model")
        with waiting.of(address.model_id):
            await client.wait_connected(_CONNECT_TIMEOUT_S)

        def report(streams: int) -> None:
            reporter.progress(f"measuring {streams} streams" if streams > 1 else "measuring")

        return await measure(
            measuring.Engine(client), encode, report, seed=10_000 * document.job_id
        )
    finally:
        await waiting.close()
        await client.close()
