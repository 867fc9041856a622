"""`bootstrap.json`: the first credentials, for users and scripts.

The first start writes it, with mode 0600. Later starts only update the URL, and do not create the
file again after it was deleted: its password is stored nowhere else.
"""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from vinery_platform.config.env import SettingError
from vinery_platform.config.home import write_private


@dataclass(frozen=True, slots=True)
class Credentials:
    """The first credentials. `base_url` is the root URL, without `/v1`."""

    base_url: str
    api_key: str
    admin_user: str
    admin_password: str


def read(file: Path) -> Credentials | None:
    """The credentials in the file; None without a file. Raises `SettingError` if it is invalid."""
    try:
        return Credentials(**json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise SettingError(f"{file} cannot be read ({error}). Correct or delete it.") from error


def write(file: Path, credentials: Credentials) -> None:
    """Write the file atomically. Raises OSError."""
    write_private(file, json.dumps(asdict(credentials), indent=2) + "\n")


def update_url(file: Path, base_url: str) -> None:
    """Update the URL if host or port have changed. Does nothing without a file."""
    known = read(file)
    if known and known.base_url != base_url:
        write(file, replace(known, base_url=base_url))
