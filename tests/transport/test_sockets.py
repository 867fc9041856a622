"""The sockets of a home lie in one folder, where each end looks for them."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.tables import table
from vinery_serving.transport import sockets

_KEY = "0123456789ab"
_ADDRESSES = sockets.EngineAddress(1, _KEY), sockets.EngineAddress(4_000_000_000, _KEY, 12)


@contextmanager
def a_folder(num_characters: int) -> Iterator[Path]:
    """A folder whose path has this length, if the system's temporary folder leaves room."""
    with tempfile.TemporaryDirectory() as beginning:
        path = Path(beginning, "x" * max(1, num_characters - len(beginning) - 1))
        path.mkdir()
        yield path
        if (elsewhere := sockets.node_socket(path).parent) != path:
            shutil.rmtree(elsewhere)


@table("num_characters", range(55, 121))  # around that with which names of sockets are too long
def test_engines_are_found_where_they_listen(num_characters: int) -> None:
    with a_folder(num_characters) as run_dir:
        paths = {each: sockets.engine_socket(run_dir, each) for each in _ADDRESSES}
        for path in paths.values():
            path.touch()

        assert sockets.engine_sockets(run_dir) == paths
        assert len(str(sockets.node_socket(run_dir))) <= 103
        assert all(len(str(path)) <= 103 for path in paths.values())
