"""`vinery node`: the process that runs one engine for each loaded model of this host."""

import argparse

from vinery_platform.cli.shape import importing, start_django
from vinery_platform.process import heartbeats, logs


def run(_: argparse.Namespace) -> int:
    start_django()
    with importing():
        from vinery_serving.node import reconciler

    return reconciler.run(heartbeats.begin_in_loop, logs.repeat)
