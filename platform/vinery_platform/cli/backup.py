"""`vinery backup` and `restore`: all state in one file, made while Vinery runs, and from the file
into an empty home folder.

Nothing is in that home before the whole backup was checked, and nothing is left there if the backup
cannot be restored.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from vinery_platform.cli import shape
from vinery_platform.config import config_file
from vinery_platform.config.home import Home
from vinery_platform.operations import backup
from vinery_platform.operations.backup import BackupFailed, Manifest

# Secrets without which a backup is of no use, if the environment has them.
_SECRETS: Final = ("VINERY_SECRET_KEY", "VINERY_SECRET_KEY_FALLBACKS", "VINERY_KEY_PEPPER_")
# The commands after a restore: migrations and checks.
_AFTERWARDS: Final = (("prepare",), ("usage", "verify", "--last", "30d"), ("audit", "verify"))


def add_backup(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="default: vinery-backup-TIME.tar.gz, in this folder"
    )
    shape.add_switch(parser, "--force", "replace FILE if it exists")
    shape.add_switch(parser, "--verify", "only check FILE, which is a backup, as a whole")


@shape.failing_on(BackupFailed)
def run_backup(arguments: argparse.Namespace) -> int:
    """Write the database, the secrets, usage that is not stored yet, the first credentials and
    vinery.toml of the home to one file. It works while Vinery runs."""
    if arguments.verify:
        if arguments.file is None:
            raise shape.Failure("Name the backup: vinery backup --verify FILE")
        manifest = _read(Path(arguments.file))
        shape.print_line(f"{arguments.file} is whole: {_describe(manifest)}")
        return 0
    shape.load_django()
    shape.require_home()
    from django.conf import settings

    name = f"vinery-backup-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.tar.gz"
    target = Path(arguments.file or name).absolute()
    try:
        database = settings.DATABASES["default"]
        manifest = backup.make(target, settings.HOME, database, replace=arguments.force)
    except FileExistsError as error:
        raise shape.Failure(f"{target} exists. Choose another name, or add --force.") from error
    except OSError as error:
        raise shape.Failure(f"The backup cannot be written: {error}.") from error
    shape.print_line(f"{target}: {_describe(manifest)}")
    print("It holds secrets: keep it where only you can read it.")
    for line in _left_out():
        shape.print_line(line)
    return 0


def _read(file: Path, into: Path | None = None) -> Manifest:
    """Check a backup, and write its members to a folder if one is given. Raises `Failure` and
    `BackupFailed`."""
    try:
        return backup.read(file, into)
    except OSError as error:
        raise shape.Failure(f"{file} cannot be restored: {error}.") from error


def _describe(manifest: Manifest) -> str:
    made = f"{manifest.created_at:%Y-%m-%d %H:%M:%S} UTC"
    return f"Vinery {manifest.version} of {made}, {manifest.database}"


def _left_out() -> list[str]:
    from django.conf import settings

    names = sorted(name for name in os.environ if name.startswith(_SECRETS))
    lines = [f"Not in the backup: {name}, which the environment sets." for name in names]
    own = settings.HOME.path / config_file.NAME
    files = [file.path for file in config_file.apply() if file.values and file.path != own]
    return lines + [f"Not in the backup: the configuration file {path}." for path in files]


# -- Restoring


def add_restore(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a backup of `vinery backup`")


@shape.failing_on(BackupFailed)
def run_restore(arguments: argparse.Namespace) -> str:
    """Check a whole backup, and put its state into this home folder, which must be empty. A
    vinery.toml in it stays."""
    home = Home.from_env()
    home.create()
    file = Path(arguments.file)
    try:
        with home.locked():
            _refuse_filled(home)
            with tempfile.TemporaryDirectory(dir=home.path, prefix="restoring-") as staging:
                manifest = _read(file, Path(staging))
                _restore(home, Path(staging), manifest)
            shape.print_line(f"Restored {home.path} from {file}: {_describe(manifest)}")
            return _bring_up_to_date(home)
    except OSError as error:
        raise shape.Failure(f"The restore failed: {error}.") from error


def _refuse_filled(home: Home) -> None:
    """Raises `Failure` for a home that has any state that a backup could replace."""
    found = [path.name for path in home.path.glob(f"{backup.SQLITE}*")]
    found += [home.bootstrap_file.name] if home.bootstrap_file.exists() else []
    found += [path.name for path in (home.secrets, home.usage) if any(path.iterdir())]
    if found:
        raise shape.Failure(
            f"{home.path} is not empty: it has {', '.join(sorted(found))}. Stop Vinery and move "
            "them to another folder, or set VINERY_HOME to a new one. Then restore again."
        )


def _restore(home: Home, staging: Path, manifest: Manifest) -> None:
    """Load a dump, and move the files of a backup into the home. A configuration file that is in
    the home stays."""
    with ExitStack() as undo:
        _move_configuration(home, staging, undo)
        shape.load_django()
        _refuse_unknown_migrations(manifest)
        _restore_database(home, staging, manifest)
        for path in staging.iterdir():
            target = home.path / path.name
            if path.is_dir():
                target.rmdir()  # it is empty
            path.rename(target)
        undo.pop_all()


def _move_configuration(home: Home, staging: Path, undo: ExitStack) -> None:
    """Move vinery.toml first: it may name the database."""
    new, own = staging / config_file.NAME, home.path / config_file.NAME
    if new.exists() and own.exists():
        shape.print_line(f"{own} stays; that of the backup is left out.")
        new.unlink()
    elif new.exists():
        new.rename(own)
        undo.callback(own.unlink, missing_ok=True)


def _refuse_unknown_migrations(manifest: Manifest) -> None:
    known = set(map(".".join, backup.known_migrations()))
    unknown = [name for name in manifest.migrations if name not in known]
    # Migrations of an earlier release may have been joined since.
    if unknown and not manifest.is_of_older_version:
        raise shape.Failure(
            f"The backup's database is newer than this Vinery: {unknown[0]} is unknown here. "
            f"Install the version that made it ({manifest.version}), or a newer one."
        )


def _restore_database(home: Home, staging: Path, manifest: Manifest) -> None:
    """Load a dump into the database of the settings. That of SQLite is moved with other files.
    Raises `Failure` if these use another kind, or a database that is not empty."""
    from django.conf import settings
    from django.db import connection

    database: dict[str, Any] = settings.DATABASES["default"]
    kind = "sqlite" if database["ENGINE"].endswith("sqlite3") else "postgresql"
    if kind != manifest.database:
        raise shape.Failure(
            f"The backup is of {manifest.database}, and this home uses {kind}. Set DATABASE_URL "
            "for a PostgreSQL database, and leave it out for SQLite."
        )
    if kind == "sqlite":
        if Path(database["NAME"]) != home.path / backup.SQLITE:
            raise shape.Failure(
                "A restore puts SQLite into the home folder. Leave out DATABASE_URL."
            )
        return
    if connection.introspection.table_names():
        raise shape.Failure(
            "The database has tables, and a restore needs an empty one. Create one (createdb NAME) "
            "and set DATABASE_URL to it. Then restore again."
        )
    connection.close()
    dump = staging / backup.DUMP
    backup.load_dump(database, dump)
    dump.unlink()


def _bring_up_to_date(home: Home) -> str:
    environment = {**os.environ, "VINERY_HOME": str(home.path)}
    for words in _AFTERWARDS:
        command = [sys.executable, "-m", "vinery_platform.cli", *words]
        if subprocess.run(command, env=environment, check=False).returncode != 0:
            raise shape.Failure(f"`vinery {' '.join(words)}` failed after the restore.")
    return "Next: vinery up. Usage journals of the backup are stored when it starts."
