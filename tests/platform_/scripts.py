"""Programs that these tests run to their end, most in Python."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests import forked_commands
from tests.conftest import REPOSITORY, clean_environment

_TIMEOUT_S = 600.0


def new_python(
    *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python from nothing to its end, in a clean environment with these settings."""
    return run(sys.executable, *arguments, environment=environment)


def run_python(
    *arguments: str, environment: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """The same in a process that has imported some libraries."""
    clean = clean_environment()
    settings = clean | dict(environment or {})
    return forked_commands.run_python(*arguments, environment=settings, clean=clean, cwd=cwd)


def make(*words: str) -> subprocess.CompletedProcess[str]:
    return run("make", *words)


def run(
    *command: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, in a clean environment with these settings."""
    return subprocess.run(
        command,
        cwd=REPOSITORY,
        env=clean_environment() | dict(environment or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )


def vinery(
    *words: str, environment: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return run_python("-m", "vinery_platform.cli", *words, environment=environment, cwd=cwd)


def refusal(
    *words: str, environment: Mapping[str, str], status: int = 2, cwd: Path | None = None
) -> str:
    """The one line in which the `vinery` command refuses, and ends with this status."""
    result = vinery(*words, environment=environment, cwd=cwd)
    assert (result.returncode, result.stdout) == (status, ""), result.stdout + result.stderr
    assert result.stderr.startswith("vinery: ")
    assert result.stderr.count("\n") == 1
    return result.stderr
