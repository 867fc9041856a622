"""`vinery node`: the process that runs one engine for each loaded model of this host."""

import argparse

from vinery.cli.shape import start_django


def run(_: argparse.Namespace) -> int:
    start_django()
    from serving.node import reconciler

    return reconciler.run()
