"""A child that is tied to its parent ends with it, however the parent ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.conftest import clean_environment, until

# Starts the child given as the first argument, tied to itself, and waits.
_PARENT = """
import os, signal, subprocess, sys
child = subprocess.Popen(
    [sys.executable, "-c", *sys.argv[1:]],
    env=os.environ | {"VINERY_PARENT_PID": str(os.getpid())},
    start_new_session=True,
)
signal.pause()
"""
_TIED = """
import os, signal, sys
from vinery.process import parent_watch
parent_watch.GRACE_S = 0.5
{before}
parent_watch.end_with(int(os.environ["VINERY_PARENT_PID"]), grace_s=0.5)
{after}
open(sys.argv[1], "w").write(str(os.getpid()))
while True:
    signal.pause()
"""


@contextmanager
def tied_child(tmp_path: Path, *, before: str = "", after: str = "") -> Iterator[tuple[int, int]]:
    """Yield the ids of a parent and its tied child. Both are running."""
    file = tmp_path / "pid"
    code = _TIED.format(before=before, after=after)
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, code, str(file)], env=clean_environment()
    )
    try:
        child_pid = until(lambda: int(file.read_text() or 0) if file.exists() else 0)
        yield parent.pid, child_pid
    finally:
        parent.kill()
        parent.wait()


@pytest.mark.parametrize(
    "before",
    [
        "",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)",  # it is killed
        "import sys; sys.platform = 'darwin'",  # without help of the kernel a thread polls
    ],
)
def test_the_child_of_a_killed_parent_ends(tmp_path: Path, before: str) -> None:
    with tied_child(tmp_path, before=before) as (parent_pid, child_pid):
        os.kill(parent_pid, signal.SIGKILL)

        until(lambda: not psutil.pid_exists(child_pid))


def test_a_process_of_the_child_ends_too(tmp_path: Path) -> None:
    deaf_family = (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "import subprocess\n"
        "grandchild = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        "open(sys.argv[1] + '.grandchild', 'w').write(str(grandchild.pid))"
    )
    with tied_child(tmp_path, before=deaf_family) as (parent_pid, _child_pid):
        grandchild_pid = int((tmp_path / "pid.grandchild").read_text())

        os.kill(parent_pid, signal.SIGKILL)

        until(lambda: not psutil.pid_exists(grandchild_pid))


def test_a_child_whose_parent_is_already_gone_ends(tmp_path: Path) -> None:
    late = "os.environ['VINERY_PARENT_PID'] = '1073741824'"  # larger than any process id
    file = tmp_path / "pid"
    code = _TIED.format(before=late, after="")
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(file)], env=clean_environment(), start_new_session=True
    )

    assert child.wait(timeout=30) == -signal.SIGTERM


def test_grandchildren_are_not_tied(monkeypatch: pytest.MonkeyPatch) -> None:
    from vinery.process import parent_watch

    held: list[int] = []
    monkeypatch.setattr(parent_watch, "end_with", held.append)
    monkeypatch.setenv(parent_watch.PARENT_VARIABLE, "4711")

    parent_watch.end_with_named_parent()
    parent_watch.end_with_named_parent()

    assert held == [4711]
