"""`bootstrap.json`: the first credentials, for people who look and scripts that start.

Written once, with mode 0600. Later starts only correct the URL, and a file that somebody
deleted stays deleted: the password in it is stored nowhere else.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from vinery.config.env import SettingError
from vinery.config.home import write_private


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client needs to begin. `base_url` is the root, without `/v1`."""

    base_url: str
    api_key: str
    admin_user: str
    admin_password: str


def read(file: Path) -> Credentials | None:
    """The credentials in the file, or None without one. Raises `SettingError` if broken."""
    try:
        return Credentials(**json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise SettingError(f"{file} cannot be read ({error}). Correct or delete it.") from error


def write(file: Path, credentials: Credentials) -> None:
    """Write the file, whole or not at all. Raises OSError."""
    write_private(file, json.dumps(asdict(credentials), indent=2) + "\n")


def move(file: Path, base_url: str) -> None:
    """Correct the URL when host or port have changed. Does nothing without a file."""
    known = read(file)
    if known and known.base_url != base_url:
        write(file, replace(known, base_url=base_url))
