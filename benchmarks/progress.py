"""Progress on standard error. A module of its own, because child processes use it as well."""

from __future__ import annotations

import sys


def show(line: str) -> None:
    """Show one line at once."""
    print(line, file=sys.stderr, flush=True)
