"""Real Python processes for these tests, small and fast to start."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.conftest import clean_environment

_TIMEOUT_S = 60.0


def run_python(
    *arguments: str, environment: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python to its end, in a clean environment with these settings."""
    return subprocess.run(
        [sys.executable, *arguments],
        env=clean_environment() | dict(environment or {}),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )


def vinery(
    *words: str, environment: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the `vinery` command to its end."""
    return run_python("-m", "vinery.cli", *words, environment=environment, cwd=cwd)
