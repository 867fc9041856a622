"""What all commands share: their parsers' type, their failure, and how Django is started."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


class Failure(Exception):
    """A command could not do what it was asked. The message says why, in one line."""


def start_django() -> None:
    """Load settings and apps, and make the home folder's folders.

    Raises `SettingError` for a setting that cannot be used.
    """
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "vinery.settings")
    import django

    django.setup()
    from django.conf import settings

    settings.HOME.create()


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of text under their heads, as wide as they need to be."""
    lines = [tuple(heads), *(tuple(row) for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(heads))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
