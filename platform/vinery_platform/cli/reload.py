"""`vinery reload`: new web processes, without a lost request.

It asks the supervisor of this home by a signal. Each new process takes the connections before the
old one stops to, and the old one ends with its last request.
"""

import argparse
import os

from vinery_platform.cli.shape import Failure
from vinery_platform.config.home import Home
from vinery_platform.process.heartbeats import RELOAD


def run(_arguments: argparse.Namespace) -> int:
    """Raises `Failure` if no `vinery up` runs with this home."""
    home = Home.from_env()
    pid = home.supervisor_pid()
    try:
        if pid is not None:
            os.kill(pid, RELOAD)
    except ProcessLookupError:  # it has ended meanwhile
        pid = None
    if pid is None:
        raise Failure(f"`vinery up` does not run with the home folder {home.path}.")
    print(
        f"vinery: process {pid} replaces its web processes one after the other. Its log has a "
        "line for each; running requests finish first."
    )
    return 0
