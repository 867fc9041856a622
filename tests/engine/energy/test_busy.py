"""Engines of one host know how long the others have worked, and when they have ended."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vinery_serving.engine.energy.busy import BusyTimes

OTHER = """
import sys
from pathlib import Path
from vinery_serving.engine.energy.busy import BusyTimes
board = BusyTimes(Path(sys.argv[1]))
print("here", flush=True)
for line in sys.stdin:
    word, at = line.split()
    (board.begin if word == "begin" else board.end)(float(at))
    print("done", flush=True)
"""


class Other:
    """An engine in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert self._read() == "here"

    def begin(self, since: float) -> None:
        self._send(f"begin {since}")

    def end(self, until: float) -> None:
        self._send(f"end {until}")

    def die(self) -> None:
        self._process.kill()
        self._process.wait()

    def _send(self, line: str) -> None:
        print(line, file=self._process.stdin, flush=True)
        assert self._read() == "done"

    def _read(self) -> str:
        return self._process.stdout.readline().strip()


@contextmanager
def another(folder: Path) -> Iterator[Other]:
    command = [sys.executable, "-c", OTHER, str(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        other = Other(process)
        yield other
        other.die()


def test_the_work_of_another_engine_is_seen_until_it_is_killed(tmp_path: Path) -> None:
    board = BusyTimes(tmp_path)
    board.begin(5.0)
    board.end(6.0)
    assert (board.others_s(7.0), board.num_engines) == (0, 1)
    with another(tmp_path) as other:
        assert board.others_s(10.0) == 0
        assert board.num_engines == 2
        other.begin(11.0)
        assert board.others_s(12.0) == 1.0
        other.end(12.5)
        assert board.others_s(14.0) == 0.5
        assert board.others_s(15.0) == 0

        other.begin(15.0)
        assert board.others_s(15.5) == 0.5
        other.die()
        board.others_s(17.0)  # scans the folder
        assert board.others_s(18.0) == 0
        assert board.num_engines == 1
        assert len(list(tmp_path.glob("*.busy"))) == 1
