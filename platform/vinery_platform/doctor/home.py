"""Checks of the home folder: access, secrets, disk, port, clock. They create nothing."""

import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from vinery_platform import backup
from vinery_platform.checks import NETWORK_FILESYSTEMS, filesystem_of
from vinery_platform.config import env, secret_files
from vinery_platform.config.env import SettingError
from vinery_platform.config.home import Home
from vinery_platform.doctor.finding import Finding, failure, ok, warning
from vinery_platform.process import running_server
from vinery_platform.process.listening import Address, listen

_LEAST_BYTES: Final = 64 << 20
# Clocks of files and of this process may differ by so much.
_SKEW_S: Final = 60.0


def folder() -> Iterator[Finding]:
    """Whether the home can be written, or made, and is closed to others."""
    home = Home.from_env()
    if not home.path.exists():
        yield from _of_missing(home)
        return
    mode = stat.S_IMODE(home.path.stat().st_mode)
    if not os.access(home.path, os.R_OK | os.W_OK | os.X_OK) or not home.path.is_dir():
        yield failure(
            "home",
            f"{home.path} is no folder that this user may write to.",
            "Run this as the user that runs `vinery up`, or set VINERY_HOME to another folder.",
        )
    elif mode & 0o077:
        yield warning("home", f"Others may open {home.path}.", f"chmod 700 {home.path}")
    else:
        yield ok("home", str(home.path))
    yield from _of_filesystem(home.path)


def _of_missing(home: Home) -> Iterator[Finding]:
    above = _existing(home.path)
    if os.access(above, os.W_OK | os.X_OK) and above.is_dir():
        yield ok("home", f"{home.path} does not exist yet: `vinery up` makes it.")
    else:
        yield failure(
            "home",
            f"{home.path} does not exist, and this user may not write to {above}.",
            "Set VINERY_HOME to a folder that this user may write to.",
        )
    yield from _of_filesystem(above)


def _of_filesystem(path: Path) -> Iterator[Finding]:
    """Locks and SQLite need a local file system."""
    kind = filesystem_of(path)
    if kind in NETWORK_FILESYSTEMS:
        yield warning(
            "file system",
            f"{path} is on a network file system ({kind}), where locks and SQLite fail.",
            "Set VINERY_HOME to a local disk.",
        )
    else:
        yield ok("file system", kind or "unknown")


def disk() -> Iterator[Finding]:
    path = _existing(Home.from_env().path)
    free_bytes = shutil.disk_usage(path).free
    wanted_bytes = 2**20 * env.integer("VINERY_MIN_FREE_DISK_MB", 256, at_least=0, at_most=10**6)
    text = f"{free_bytes / 2**30:.1f} GiB are free at {path}."
    cure = "Free some space, or set VINERY_HOME to a larger disk."
    if free_bytes < _LEAST_BYTES:
        yield failure("disk", text, cure)
    elif free_bytes < wanted_bytes:
        yield warning("disk", text, cure)
    else:
        yield ok("disk", text)


def secrets() -> Iterator[Finding]:
    """Whether they are there, and closed to others."""
    home = Home.from_env()
    if not home.path.exists():
        return
    try:
        secret_files.require(home)
    except SettingError as error:
        if _was_used(home):
            yield failure("secrets", str(error), "vinery prepare, or restore them from a backup")
        else:
            yield ok("secrets", "There are none yet: `vinery up` makes them.")
        return
    files = home.secrets.iterdir() if home.secrets.is_dir() else iter(())
    opened = [path for path in files if path.stat().st_mode & 0o077]
    if opened:
        yield failure("secrets", f"Others may read {opened[0]}.", f"chmod 600 {home.secrets}/*")
    else:
        yield ok("secrets", "They are there, and no other user may read them.")


def _was_used(home: Home) -> bool:
    """Whether Vinery has run with this home. It may hold a configuration file
    before."""
    parts = (home.secrets, home.bootstrap_file, home.path / backup.SQLITE)
    return any(part.exists() for part in parts)


def port() -> Iterator[Finding]:
    """Whether the port is free, or used by the server of this home."""
    server = running_server.read(Home.from_env())
    if server is not None:
        yield ok("port", f"Vinery runs at {server.base_url} (process {server.pid}).")
        return
    address = Address.from_env()
    try:
        with listen(address) as socket:
            text = f"{address.port or socket.getsockname()[1]} on {address.host} is free."
    except SettingError as error:
        yield failure("port", str(error), "ss -ltnp shows which program uses it.")
    else:
        yield ok("port", text)


def clock() -> Iterator[Finding]:
    """A clock that was set back makes usage and expiry wrong."""
    home = Home.from_env()
    files = (home.bootstrap_file, home.run, home.usage, home.secrets)
    times = [path.stat().st_mtime for path in files if path.exists()]
    ahead_s = max(times, default=0.0) - time.time()
    if ahead_s > _SKEW_S:
        yield warning(
            "clock",
            f"Files of the home are from {ahead_s:.0f} s in the future: the clock was set back.",
            "Correct the clock, and let NTP keep it: timedatectl set-ntp true",
        )
    else:
        yield ok("clock", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()))


def _existing(path: Path) -> Path:
    """The path, or the nearest folder above it that exists."""
    return next(each for each in (path, *path.parents) if each.exists())


CHECKS: Final = (folder, disk, secrets, port, clock)
