"""The settings that this room reads, checked where they are read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured


def key_peppers() -> Mapping[int, bytes]:
    """The secrets under which keys are stored, by number. The highest makes new keys.

    Raises `ImproperlyConfigured` when there is none.
    """
    peppers: Mapping[int, bytes] = _setting("VINERY_KEY_PEPPERS")
    if not peppers or not all(peppers.values()):
        raise ImproperlyConfigured(
            "VINERY_KEY_PEPPERS must map at least one number to a secret, such as {1: b'...'}."
        )
    return peppers


def usage_directory() -> Path:
    """Where the processes of this host keep their usage journals."""
    home: Path = _setting("VINERY_HOME")
    return home / "usage"


def _setting(name: str) -> Any:
    if not hasattr(settings, name):
        raise ImproperlyConfigured(f"The setting {name} is missing.")
    return getattr(settings, name)
