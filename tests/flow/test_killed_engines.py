"""Requests whose real engine is killed: the answers of the next engine."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from tests.engine.conftest import engine_config
from tests.flow.tiny_chat import HELLO, prepared_of
from tests.prompting.builders import a_chat
from vinery_serving.core.request import BeamSearch, GenerationRequest, Stopping
from vinery_serving.core.result import Result
from vinery_serving.gateway.engines.directory import Engine
from vinery_serving.gateway.preparing.prepared import PreparedRequest
from vinery_serving.gateway.running.generate import whole
from vinery_serving.node.engine_process import EngineProcess

pytestmark = pytest.mark.live

TIMEOUT_S = 60
BEAMS = replace(
    HELLO,
    prompt=a_chat(("user", "Count to 60.")),
    stopping=Stopping(max_tokens=160),
    beams=BeamSearch(width=4),
    n=2,
)


@asynccontextmanager
async def running(engine: Engine) -> AsyncIterator[EngineProcess]:
    """A real engine at the socket of this `Engine`."""
    process = EngineProcess(engine_config(engine.replicas.path.parent, "e", {}))
    try:
        await process.start()
        await engine.replicas.wait_connected(TIMEOUT_S)
        yield process
    finally:
        await process.end()


async def killed_in_the_middle(
    engine: Engine, process: EngineProcess, request: GenerationRequest
) -> tuple[PreparedRequest, asyncio.Task[Result]]:
    """Start a request, and kill its engine some steps later."""
    assert process.pid is not None
    while True:
        num_before = (await engine.replicas.clients[0].ping(TIMEOUT_S)).num_steps
        prepared = await prepared_of(engine, request)
        answering = asyncio.create_task(whole(prepared))
        while (await engine.replicas.clients[0].ping(TIMEOUT_S)).num_steps < num_before + 20:
            pass
        os.kill(process.pid, signal.SIGSTOP)
        await asyncio.sleep(0.1)  # for tokens that were sent already
        if not answering.done():
            os.kill(process.pid, signal.SIGKILL)
            return prepared, answering
        os.kill(process.pid, signal.SIGCONT)


async def test_a_beam_search_begins_anew_on_the_next_engine(engine):
    """No client has seen a beam before the end. Other answers:
    tests/engine/test_known_tokens.py."""
    async with running(engine) as process:
        undisturbed = await whole(await prepared_of(engine, BEAMS))
        prepared, answering = await killed_in_the_middle(engine, process, BEAMS)
    async with running(engine):
        answer = await answering

    assert answer.choices == undisturbed.choices
    assert answer.usage.num_output_tokens == undisturbed.usage.num_output_tokens
    assert prepared.meter.num_continuations == 1
