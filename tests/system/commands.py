"""Administration of a running platform as its administrator does it: by command."""

from __future__ import annotations

from tests import forked_commands
from tests.conftest import Running
from tests.system.ledger import wait_until_seen


def vinery(platform: Running, *arguments: str) -> str:
    """Run the `vinery` command beside the running platform. Returns what it printed, once every
    web process has seen what it changed."""
    result = forked_commands.run(*arguments, environment=platform.environment)
    assert result.returncode == 0, result.stderr
    wait_until_seen(platform)
    return result.stdout
