"""The `vinery` command.

Old versions of Python can read this file, so they print which version is needed.
"""

import atexit
import gc
import os
import sys

_OLDEST_PYTHON = (3, 11)


def main(argv=None):  # type: ignore[no-untyped-def]
    """Run one command. Returns its exit status; 2 means that a setting must change."""
    if sys.version_info < _OLDEST_PYTHON:
        needed, found = (
            ".".join(str(part) for part in version[:2])
            for version in (_OLDEST_PYTHON, sys.version_info)
        )
        sys.stderr.write(
            "vinery: Python {} or newer is needed, this is {}.\n".format(needed, found)  # noqa: UP032
        )
        return 2
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
