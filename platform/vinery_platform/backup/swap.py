"""Puts a new state into a home folder and keeps the old one beside it, whatever interrupts.

The new state is prepared in the folder `restoring`, where it changes nothing. Then a plan is
written there, and renames follow it. A process that is killed among them leaves the plan. The
commands refuse such a home until `vinery restore --resume` has done the other renames.
"""

import os
import shutil
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from vinery_platform.backup import BackupFailed, archive, postgresql
from vinery_platform.config.home import Home, write_private

_DATABASE: Final = (archive.SQLITE, f"{archive.SQLITE}-wal", f"{archive.SQLITE}-shm")


class Plan(msgspec.Struct, frozen=True):
    """Which names in the home are replaced. Paths are relative to the home."""

    source: str  # the folder with the new state
    kept: str  # the folder that gets the old state
    leaving: tuple[str, ...]
    arriving: tuple[str, ...]
    # libpq's parameters of the server into which the dump is loaded first; empty: SQLite.
    server: dict[str, str] = {}


def begin(home: Home) -> Path:
    """Return an empty folder for the new state. Raises OSError."""
    give_up(home)
    staging = home.restore_plan.with_name("new")
    staging.mkdir(mode=0o700, parents=True)
    for name in ("secrets", "usage"):
        (staging / name).mkdir(mode=0o700)
    return staging


def give_up(home: Home) -> None:
    """Remove what `begin` created."""
    shutil.rmtree(home.restore_plan.parent, ignore_errors=True)


def new_plan(home: Home, source: Path, server: dict[str, str]) -> Plan:
    """Plan to replace the home's state by that in a folder of the home. A configuration file
    stays if the folder has none."""
    arriving = {path.name for path in source.iterdir()} - {archive.DUMP}
    leaving = {*(() if server else _DATABASE), "secrets", "usage", "bootstrap.json", *arriving}
    return Plan(
        str(source.relative_to(home.path)),
        f"before-restore-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}",
        tuple(sorted(leaving)),
        tuple(sorted(arriving)),
        server,
    )


def commit(home: Home, plan: Plan) -> None:
    """Write the plan: from now on the home has to be finished. Raises OSError."""
    folder = home.restore_plan.parent
    folder.mkdir(mode=0o700, exist_ok=True)
    write_private(home.restore_plan, msgspec.json.encode(plan).decode())
    _sync(folder)


def read_plan(home: Home) -> Plan:
    """The plan of a restore that was interrupted. Raises `BackupFailed`."""
    try:
        return msgspec.json.decode(home.restore_plan.read_bytes(), type=Plan)
    except (OSError, msgspec.MsgspecError) as error:
        raise BackupFailed(f"{home.restore_plan} cannot be read: {error}.") from error


def keep_dump(home: Home, plan: Plan) -> None:
    """Write a dump of the database to the folder for the old state. Raises `BackupFailed`."""
    folder = home.path / plan.kept
    folder.mkdir(mode=0o700)
    try:
        postgresql.dump(plan.server, folder / archive.DUMP)
    except BackupFailed:
        shutil.rmtree(folder)
        raise


def withdraw(home: Home, plan: Plan) -> None:
    """Undo `commit` and `keep_dump` where `finish` changed nothing."""
    home.restore_plan.unlink()
    shutil.rmtree(home.path / plan.kept, ignore_errors=True)


def finish(home: Home, plan: Plan) -> Path:
    """Load the dump if there is one, move the old state to its folder, and the new one into the
    home. Safe to repeat after an interruption. Returns the folder with the old state.

    Raises `BackupFailed` if the dump cannot be loaded, and then nothing changed; and OSError.
    """
    kept, source = home.path / plan.kept, home.path / plan.source
    dump = source / archive.DUMP
    if dump.exists():
        postgresql.load(plan.server, dump)
        dump.unlink()
    kept.mkdir(mode=0o700, exist_ok=True)
    for name in plan.leaving:
        # What has arrived is no longer in the source, and must stay.
        if name not in plan.arriving or (source / name).exists():
            _move(home.path / name, kept / name)
        _move(source / name, home.path / name)
    for folder in (kept, home.path):
        _sync(folder)
    home.restore_plan.unlink()
    with suppress(OSError):  # it may hold files of the user
        source.rmdir()
    give_up(home)
    return kept


def _move(source: Path, target: Path) -> None:
    if source.exists():
        source.rename(target)


def _sync(folder: Path) -> None:
    """Write the names in a folder to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
