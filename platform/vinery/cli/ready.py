"""`vinery ready`: check whether the server of this machine is ready, for health checks."""

from __future__ import annotations

import argparse

from vinery.cli.shape import Failure
from vinery.health.client import Readiness, readiness
from vinery.process.listening import Address


def run(_: argparse.Namespace) -> int:
    """Print a line. Raises `Failure` if the server is not ready."""
    base_url = Address.from_env().base_url
    state = readiness(base_url)
    if state is not Readiness.READY:
        raise Failure(f"{base_url} is not ready: it waits for {state.value}.")
    print(f"{base_url} is ready.")
    return 0
