"""Administration of a running platform as its administrator does it: by command."""

from __future__ import annotations

import subprocess
import sys

from tests.conftest import REPOSITORY, Running
from tests.system.ledger import wait_until_seen


def vinery(platform: Running, *arguments: str) -> str:
    """Run the `vinery` command beside the running platform. Returns what it printed, once every
    web process has seen what it changed."""
    result = subprocess.run(
        [sys.executable, "-m", "vinery.cli", *arguments],
        env=platform.environment,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    wait_until_seen(platform)
    return result.stdout
