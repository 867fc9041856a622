"""Python programs with any settings, each in a process that is forked from one with libraries.

To import libraries takes a command most of its time. This process has imported no settings and no
tables, so each program reads its own. That a command starts from nothing is tested in
`test_cli.py`.
"""

import atexit
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from runpy import run_module
from typing import NoReturn

_REPOSITORY = Path(__file__).resolve().parents[2]
_TIMEOUT_S = 60
_LIBRARIES = (
    *("django.contrib.admin", "django.contrib.auth.hashers", "django.core.management"),
    *("django.db.backends.sqlite3.base", "django.db.models", "django.test", "jinja2", "pydantic"),
    *("vinery.cli.commands", "vinery.cli.up"),
)


@cache
def _server(environment: frozenset[tuple[str, str]]) -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.platform_.forked_python"],
        env=dict(environment),
        cwd=_REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(server.communicate)
    return server


def run(
    *arguments: str, environment: Mapping[str, str], clean: Mapping[str, str], cwd: Path | None
) -> subprocess.CompletedProcess[str]:
    """Run `python ARGUMENTS...` to its end, with exactly this environment."""
    server = _server(frozenset(clean.items()))
    assert server.stdin is not None and server.stdout is not None
    with tempfile.TemporaryDirectory(prefix="vinery-python-") as folder:
        request = {
            "arguments": arguments,
            "environment": dict(environment),
            "cwd": str(cwd or _REPOSITORY),
            "folder": folder,
        }
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        status = server.stdout.readline()
        assert status, "the process that forks has ended"
        output, errors = ((Path(folder) / name).read_text() for name in ("output", "errors"))
    return subprocess.CompletedProcess(arguments, int(status), output, errors)


# -- In the process that forks --------------------------------------------------------------


def _serve() -> None:
    for module in _LIBRARIES:
        import_module(module)
    assert "vinery.settings" not in sys.modules
    gc.freeze()  # a collection would copy all pages that the processes share
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _run(**json.loads(line))
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _run(arguments: list[str], environment: dict[str, str], cwd: str, folder: str) -> NoReturn:
    signal.alarm(_TIMEOUT_S)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    for fd, file in enumerate((os.devnull, f"{folder}/output", f"{folder}/errors")):
        os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), fd)
    status = 0
    try:
        _execute(*arguments)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(bool(end.code))
    except BaseException:  # of any kind: the fork must not return to the server's loop
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # Its end in order would free each object, and copy the page that it lies on.
    os._exit(status)


def _execute(option: str, what: str, *words: str) -> None:
    sys.argv = [option, *words]
    if option == "-m":
        run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    _serve()
