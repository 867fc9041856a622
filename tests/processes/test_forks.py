"""Processes as forks of one that has imported what they need."""

import json
import os
import socket
import sys
from collections.abc import Iterator
from subprocess import DEVNULL, Popen

import psutil
import pytest

from tests.conftest import until
from vinery_serving.processes.child import ChildProcess
from vinery_serving.processes.forks import Forks

# The command of a fork is code, which writes what it sees to descriptor 9.
_SERVER = """
import os, socket, sys
from vinery_serving.processes import forks
argv = forks.serve(socket.socket(fileno=int(sys.argv[1])))
if argv:
    exec(argv[-1])
"""
_REPORT = """
import json, signal
os.write(9, json.dumps([dict(os.environ), os.getpgrp(), os.getpid()]).encode())
signal.pause()
"""


@pytest.fixture
def server() -> Iterator[tuple[Forks, Popen[bytes]]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        argv = [sys.executable, "-c", _SERVER, str(theirs.fileno()).zfill(2 * len(_REPORT))]
        process = Popen(argv, pass_fds=(theirs.fileno(),), stdin=DEVNULL)
        theirs.close()
        yield Forks(ours), process
    process.wait()


def test_a_fork_has_the_environment_descriptors_and_command_line_of_a_program(
    server: tuple[Forks, Popen[bytes]],
) -> None:
    read, write = os.pipe()
    os.dup2(write, 9)
    argv = ("python", "-c", _REPORT)
    child = ChildProcess(argv, "x", environment={"A": "b"}, fds=(9,), fork=server[0].fork)
    for fd in (9, write):
        os.close(fd)

    environment, group, pid = json.loads(os.read(read, 4096))
    assert (environment, group, pid) == ({"A": "b"}, child.pid, child.pid)
    shown = psutil.Process(pid).cmdline()
    assert tuple(word for word in shown if word) == argv
    assert not child.has_ended

    child.kill()
    until(lambda: child.has_ended)
    assert os.read(read, 1) == b""  # no other process holds the descriptor
    os.close(read)
    child.close()


def test_without_a_process_that_forks_a_program_starts(
    server: tuple[Forks, Popen[bytes]],
) -> None:
    forks, process = server
    process.kill()
    process.wait()
    argv = (sys.executable, "-c", "raise SystemExit(3)")
    assert ChildProcess(argv, "x", fork=forks.fork).reap() == 3
