"""The `vinery` command."""

import atexit
import gc
import os
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit status; 2 means that a setting must change."""
    # Before Python ends it looks through all objects for garbage: 0.3 s of each command.
    atexit.register(gc.freeze)
    # Before the imports: this process must also end if its parent dies during the start.
    from vinery_serving.processes import parent

    parent.end_gently_with_named_parent()
    if os.environ.get("VINERY_HEARTBEAT"):  # else other commands would import it for nothing
        from vinery_platform.processes import heartbeats

        heartbeats.inherit()
    from vinery_platform.cli import commands

    return commands.run(argv)
