"""An engine whose compiled grammars take too much memory restarts in an idle moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.conftest import TINY_CHAT
from tests.engine.in_process import config_of
from vinery_serving.engine.generation import Generation
from vinery_serving.engine.loop import _PROBE, EngineLoop
from vinery_serving.engine.pipeline import Pipeline
from vinery_serving.engine.process import PipelineBroken
from vinery_serving.transport.messages import Pong
from vinery_serving.transport.server import SocketServer

pytestmark = pytest.mark.live


class Full:
    """Stands for `GrammarChecks`, with a given fullness."""

    def __init__(self, fullness: float) -> None:
        self.fullness = fullness

    def tick(self) -> None:
        pass


@pytest.fixture
def loop(pipeline: Pipeline, tmp_path: Path) -> EngineLoop:
    return EngineLoop(config_of(TINY_CHAT, tmp_path), pipeline)


@pytest.fixture
def server(tmp_path: Path):  # type: ignore[no-untyped-def]
    server = SocketServer(tmp_path / "e.sock", lambda: Pong(0, None))  # type: ignore[arg-type,return-value]
    yield server
    server.close()


def turn(loop: EngineLoop, server: SocketServer, fullness: float) -> None:
    loop._grammars = Full(fullness)  # type: ignore[assignment]
    loop._iterate(server)


def test_it_restarts_when_no_request_is_there(loop: EngineLoop, server: SocketServer) -> None:
    turn(loop, server, 0.9)
    while loop._batch.has_work:
        turn(loop, server, 0.9)
    with pytest.raises(PipelineBroken, match="too much memory"):
        turn(loop, server, 1.1)


def test_it_waits_for_running_generations(loop: EngineLoop, server: SocketServer) -> None:
    generation = Generation.of(None, _PROBE)
    loop._alive[(1, 1)] = generation
    loop._batch.add(generation)
    while loop._batch.has_work:
        turn(loop, server, 3.0)
    with pytest.raises(PipelineBroken, match="too much memory"):
        turn(loop, server, 3.0)


def test_waiting_generations_are_admitted_until_it_is_twice_as_full(
    loop: EngineLoop, server: SocketServer
) -> None:
    for fullness, is_admitted in ((1.5, True), (2.5, False)):
        generation = Generation.of(None, _PROBE)
        loop._grammars = Full(fullness)  # type: ignore[assignment]
        loop._waiting.add(generation)
        loop._admit()
        assert (len(loop._waiting) == 0) == is_admitted
    while loop._batch.has_work:
        loop._batch.step()
