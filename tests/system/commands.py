"""Administration of a running platform as its administrator does it: by command."""

from tests import forked_commands
from tests.conftest import Running
from tests.system.ledger import wait_until_seen


def vinery(platform: Running, *arguments: str) -> str:
    """Run the `vinery` command beside the running platform. Returns what it printed, once every
    web process has seen what it changed."""
    printed = command(platform, *arguments)
    wait_until_seen(platform)
    return printed


def command(platform: Running, *arguments: str) -> str:
    """The same, which does not wait until anyone has seen it."""
    result = forked_commands.run(*arguments, environment=platform.environment)
    assert result.returncode == 0, result.stderr
    return result.stdout
