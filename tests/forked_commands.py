"""Commands of an installation, each in a process that is forked from one with Django loaded.

Loading it takes a command most of its time, and tests run a hundred commands. That a command
starts from nothing is tested in `tests/platform_/test_cli.py`, and of each process of a platform
by every platform that tests start.
"""

import gc
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from runpy import run_module
from typing import NoReturn

_REPOSITORY = Path(__file__).resolve().parents[1]


class _Parent:
    """The process that has loaded Django with the settings of one installation."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forked_commands"],
            env=self.environment,
            cwd=_REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, module: str, words: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory(prefix="vinery-command-") as folder:
            request = {"module": module, "words": words, "folder": folder}
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            status = self._process.stdout.readline()
            assert status, "the process that forks commands has ended"
            output, errors = (
                (Path(folder) / name).read_text(encoding="utf-8") for name in ("output", "errors")
            )
        return subprocess.CompletedProcess(words, int(status), output, errors)

    def end(self) -> None:
        self._process.communicate()


_parents: list[_Parent] = []


def run(
    *words: str, environment: Mapping[str, str], module: str = "vinery.cli"
) -> subprocess.CompletedProcess[str]:
    """Run `python -m MODULE WORDS...` to its end, with exactly this environment."""
    # One is kept: tests of one platform follow each other.
    if not _parents or _parents[0].environment != environment:
        while _parents:
            _parents.pop().end()
        _parents.append(_Parent(environment))
    return _parents[0].run(module, words)


# -- In the process that forks --------------------------------------------------------------


def _serve() -> None:
    """Fork for each line of the standard input, and report the exit status."""
    from vinery.cli.commands import COMMANDS
    from vinery.cli.shape import load_django

    load_django()
    commands = (f"vinery.cli.{name.replace('-', '_')}" for name in COMMANDS)
    for module in ("celery.bin.celery", *commands):
        import_module(module)
    gc.freeze()  # a collection would copy all pages that the processes share
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _run(**json.loads(line))
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _run(module: str, words: list[str], folder: str) -> NoReturn:
    for fd, file in enumerate((os.devnull, f"{folder}/output", f"{folder}/errors")):
        os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), fd)
    sys.argv = [module, *words]
    status = 0
    try:
        run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(bool(end.code))
    except BaseException:  # of any kind: the fork must not return to the server's loop
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # Its end in order would free each object, and copy the page that it lies on.
    os._exit(status)


if __name__ == "__main__":
    _serve()
