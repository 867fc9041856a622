"""Python programs, each in a fork of a process that has loaded the slow imports.

Loading takes most of a command's time, and tests run hundreds of commands. The start from nothing
is tested for commands in `tests/platform_/test_cli.py`, and for the processes of a platform by
every platform that tests start.
"""

import gc
import json
import os
import signal
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
_TIMEOUT_S = 120
_LIBRARIES = (
    *("django.contrib.admin", "django.contrib.auth.hashers", "django.core.management"),
    *("django.db.backends.sqlite3.base", "django.db.models", "django.test", "jinja2", "pydantic"),
    *("vinery_platform.cli.commands", "vinery_platform.cli.up"),
)


def run(
    *words: str, environment: Mapping[str, str], module: str = "vinery_platform.cli"
) -> subprocess.CompletedProcess[str]:
    """Run `python -m MODULE WORDS...` to its end, with exactly this environment.

    Django is loaded before, with the settings of this environment.
    """
    server = _server("commands", environment)
    return server.run(("-m", module, *words), environment, _REPOSITORY)


def run_python(
    *arguments: str, environment: Mapping[str, str], clean: Mapping[str, str], cwd: Path | None
) -> subprocess.CompletedProcess[str]:
    """Run `python ARGUMENTS...` to its end, with exactly this environment.

    Libraries are loaded before, with the environment `clean`, but no settings and no tables.
    """
    return _server("libraries", clean).run(arguments, environment, cwd or _REPOSITORY)


class _Server:
    """The process that forks."""

    def __init__(self, loads: str, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forked_commands", loads],
            env=self.environment,
            cwd=_REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self, arguments: tuple[str, ...], environment: Mapping[str, str], cwd: Path
    ) -> subprocess.CompletedProcess[str]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        with tempfile.TemporaryDirectory(prefix="vinery-command-") as folder:
            request = (arguments, dict(environment), str(cwd), folder)
            stdin.write(json.dumps(request) + "\n")
            stdin.flush()
            status = stdout.readline()
            assert status, "the process that forks has ended"
            output, errors = (
                (Path(folder) / name).read_text(encoding="utf-8") for name in ("output", "errors")
            )
        return subprocess.CompletedProcess(arguments, int(status), output, errors)

    def end(self) -> None:
        self._process.communicate()


# One server of each kind is kept: tests of one platform follow each other.
_servers: dict[str, _Server] = {}


def _server(loads: str, environment: Mapping[str, str]) -> _Server:
    if loads in _servers and _servers[loads].environment != environment:
        _servers.pop(loads).end()
    if loads not in _servers:
        _servers[loads] = _Server(loads, environment)
    return _servers[loads]


# -- In the process that forks --------------------------------------------------------------


def _serve(loads: str) -> None:
    """Fork for each line of the standard input, and report the exit status."""
    {"commands": _load_commands, "libraries": _load_libraries}[loads]()
    gc.freeze()  # a collection would copy all pages that the processes share
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _run(*json.loads(line))
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _load_commands() -> None:
    from vinery_platform.cli.commands import COMMANDS, module_of
    from vinery_platform.cli.shape import load_django

    load_django()
    for module in map(module_of, COMMANDS):
        import_module(module)


def _load_libraries() -> None:
    for module in _LIBRARIES:
        import_module(module)
    assert "vinery_platform.settings" not in sys.modules


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
    # An end in order would free each object, and copy its page of memory.
    os._exit(status)


def _execute(option: str, what: str, *words: str) -> None:
    sys.argv = [option, *words]
    if option == "-m":
        run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    _serve(sys.argv[1])
