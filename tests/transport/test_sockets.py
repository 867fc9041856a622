"""The sockets of a home lie in one folder, where each end looks for them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from vinery_serving.transport.sockets import (
    EngineAddress,
    engine_socket,
    engine_sockets,
    node_socket,
)

_ADDRESSES = (EngineAddress(1, "0123456789ab"), EngineAddress(4_000_000_000, "0123456789ab", 12))


@pytest.fixture(params=range(55, 121))
def run_dir(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder whose path has each length around that with which names of sockets become too
    long."""
    with tempfile.TemporaryDirectory() as beginning:
        path = Path(beginning, "x" * max(1, request.param - len(beginning) - 1))
        path.mkdir()
        yield path
        if (elsewhere := node_socket(path).parent) != path:
            shutil.rmtree(elsewhere)


def test_engines_are_found_where_they_listen(run_dir: Path) -> None:
    paths = {each: engine_socket(run_dir, each) for each in _ADDRESSES}
    for path in paths.values():
        path.touch()

    assert engine_sockets(run_dir) == paths
    assert len(str(node_socket(run_dir))) <= 103
    assert all(len(str(path)) <= 103 for path in paths.values())
