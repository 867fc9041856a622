"""An engine for the tests of this room, which each of them may script."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateway.running.tiny_chat import new_engine
from vinery_serving.gateway.engines.directory import Engine


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    """The engine's client looks for a process until the test is over."""
    engine = new_engine(tmp_path)
    engine.replicas.open()
    yield engine
    await engine.replicas.close()
