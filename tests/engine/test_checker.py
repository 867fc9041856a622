"""The process that tries grammars ends with its engine, also inside a grammar without end."""

import signal
import subprocess
import sys

import psutil
import pytest

from tests.conftest import runs, until
from tests.engine.conftest import TINY_CHAT

pytestmark = pytest.mark.live

# Sends a grammar that takes minutes, and waits to be killed.
ENGINE = """
import sys
from pathlib import Path
from vinery_serving.engine.grammars import Checker
from vinery_serving.transport.messages import GrammarSpec
checker = Checker(Path(sys.argv[1]), 3072)
assert checker.receive() is None
checker.send(GrammarSpec("regex", "((a{1,300}b{1,300}){1,300}|c){1,300}" * 8))
print(checker._process.pid, flush=True)
sys.stdin.read()
"""


def test_a_checker_ends_with_a_killed_engine_inside_a_grammar() -> None:
    command = [sys.executable, "-c", ENGINE, str(TINY_CHAT)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as engine:
        checker = psutil.Process(int(engine.stdout.readline()))
        until(lambda: checker.cpu_times().user > 0.5)

        engine.send_signal(signal.SIGKILL)

        until(lambda: not runs(checker))
