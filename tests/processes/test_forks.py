"""Processes as forks of one that has imported what they need."""

import asyncio
import ctypes
import json
import os
import signal
import sys
from collections.abc import Iterator
from functools import partial
from subprocess import DEVNULL, Popen

import psutil
import pytest

from tests.conftest import until
from vinery_serving.processes import forks
from vinery_serving.processes.child import ChildProcess
from vinery_serving.processes.forks import Forks

_PR_SET_CHILD_SUBREAPER = 36
# The command of a fork is code. Another descriptor is open, as libraries may open them.
_SERVER = """
import os, sys
from vinery_serving.processes import forks
os.open(os.devnull, os.O_RDONLY)
if argv := forks.serve():
    exec(argv[-1])
"""
_REPORT = """
import json, os, signal
fds = sorted(map(int, os.listdir("/proc/self/fd")))
os.write({fd}, json.dumps([os.environ["A"], os.getsid(0), os.getpid(), fds]).encode())
signal.pause()
"""
_END = (sys.executable, "-c", "raise SystemExit(3)")


@pytest.fixture
def server() -> Iterator[tuple[Forks, Popen[bytes]]]:
    variables = dict(os.environ) | {"A": "a"}
    asking = Forks(variables)
    # The command line has to have room for those of forks.
    argv = [sys.executable, "-c", _SERVER, " " * len(_REPORT)]
    fds = (asking.theirs.fileno(),)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    process = Popen(argv, env=variables, pass_fds=fds, stdin=DEVNULL)
    until(lambda: asking.is_ready)
    yield asking, process
    asking.close()
    process.kill()
    process.wait()
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 0)


def test_a_fork_has_variables_descriptors_and_command_line_like_a_program_and_no_others(
    server: tuple[Forks, Popen[bytes]],
) -> None:
    read, write = os.pipe()
    argv = ("python", "-c", _REPORT.replace("{fd}", str(write)))
    start = partial(server[0].start, {"A": "b"})
    child = ChildProcess(argv, "x", fds=(write,), start=start)
    os.close(write)

    variable, session, pid, numbers = json.loads(os.read(read, 4096))
    assert (variable, session, pid) == ("b", child.pid, child.pid)
    assert {0, 1, 2, write} < set(numbers) and len(numbers) == 5  # one is the folder that is read
    shown = psutil.Process(pid).cmdline()
    assert tuple(word for word in shown if word) == argv
    assert not child.has_ended

    child.kill()
    until(lambda: child.has_ended)
    assert child.status == -signal.SIGKILL
    assert os.read(read, 1) == b""  # no other process holds the descriptor
    os.close(read)
    child.close()


def test_a_program_starts_while_no_process_forks(server: tuple[Forks, Popen[bytes]]) -> None:
    asking, process = server
    process.kill()
    process.wait()
    child = ChildProcess(_END, "x", start=partial(asking.start, {}))
    assert asyncio.run(child.wait()) == 3
    child.close()
    assert not asking.is_ready


def test_a_fork_that_comes_too_late_ends(
    server: tuple[Forks, Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asking, process = server
    monkeypatch.setattr(forks, "_WITHIN_S", 0.1)
    process.send_signal(signal.SIGSTOP)
    until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
    argv = (*_END[:-1], "import signal; signal.pause()")
    others = {each.pid for each in psutil.Process().children()}
    child = ChildProcess(argv, "x", start=partial(asking.start, {}))
    assert {each.pid for each in psutil.Process().children()} - others == {child.pid}
    process.send_signal(signal.SIGCONT)
    process.wait()
    until(
        lambda: not [each for each in psutil.Process().children() if _is_new(each, others, child)]
    )
    asyncio.run(child.end())


def _is_new(process: psutil.Process, others: set[int], child: ChildProcess) -> bool:
    is_known = process.pid == child.pid or process.pid in others
    return not is_known and process.status() != psutil.STATUS_ZOMBIE
