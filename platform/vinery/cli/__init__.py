"""The `vinery` command.

This file is written so that old Pythons can read it, and tell what they lack.
"""

import sys

_OLDEST_PYTHON = (3, 11)


def main(argv=None):  # type: ignore[no-untyped-def]
    """Run one command and return its exit status; 2 means that a setting must change."""
    if sys.version_info < _OLDEST_PYTHON:
        needed, found = (
            ".".join(str(part) for part in version[:2])
            for version in (_OLDEST_PYTHON, sys.version_info)
        )
        sys.stderr.write(
            "vinery: Python {} or newer is needed, this is {}.\n".format(needed, found)  # noqa: UP032
        )
        return 2
    # First of all: a parent that dies in the next moment must take this process with it.
    from vinery.process import parent_watch as tether

    tether.hold_to_named_parent()
    from vinery.cli import commands

    return commands.run(argv)
