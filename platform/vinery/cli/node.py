"""`vinery node`: the process that runs one engine for each loaded model of this host."""

from __future__ import annotations

import argparse

from vinery.cli.shape import Commands, start_django


def add_to(commands: Commands) -> None:
    """Add `vinery node`."""
    parser = commands.add_parser(
        "node",
        help="run the engines of this host (started by `up`)",
        description="Watch which models should be loaded here, and run an engine for each.",
    )
    parser.set_defaults(run=run)


def run(_: argparse.Namespace) -> int:
    """Run engines until SIGTERM."""
    start_django()
    from serving.node import main

    return main()
