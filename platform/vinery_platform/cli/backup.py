"""`vinery backup`: all state of this installation in one file, while it runs."""

import argparse
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from vinery_platform.cli.shape import Failure, load_django, print_line, require_home
from vinery_platform.config import config_file
from vinery_platform.operations import backup
from vinery_platform.operations.backup import BackupFailed, Manifest

# Secrets without which a backup is of no use, if the environment has them.
_SECRETS: Final = ("VINERY_SECRET_KEY", "VINERY_SECRET_KEY_FALLBACKS", "VINERY_KEY_PEPPER_")


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="default: vinery-backup-TIME.tar.gz, in this folder"
    )
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
    parser.add_argument(
        "--verify", action="store_true", help="only check FILE, which is a backup, as a whole"
    )


def run(arguments: argparse.Namespace) -> int:
    """Make or check a backup. Raises `SettingError` and `Failure`."""
    if arguments.verify:
        return _verify(arguments.file)
    load_django()
    require_home()
    from django.conf import settings

    name = f"vinery-backup-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.tar.gz"
    target = Path(arguments.file or name).absolute()
    try:
        database = settings.DATABASES["default"]
        manifest = backup.make(target, settings.HOME, database, replace=arguments.force)
    except BackupFailed as error:
        raise Failure(str(error)) from error
    except FileExistsError as error:
        raise Failure(f"{target} exists. Choose another name, or add --force.") from error
    except OSError as error:
        raise Failure(f"The backup cannot be written: {error}.") from error
    print_line(f"{target}: {describe(manifest)}")
    print("It holds secrets: keep it where only you can read it.")
    for line in _left_out():
        print_line(line)
    return 0


def _verify(file: str | None) -> int:
    if file is None:
        raise Failure("Name the backup: vinery backup --verify FILE")
    print_line(f"{file} is whole: {describe(read(Path(file)))}")
    return 0


def read(file: Path, into: Path | None = None) -> Manifest:
    """Check a backup, and write its members to a folder if one is given. Raises `Failure`."""
    try:
        return backup.read(file, into)
    except BackupFailed as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(f"{file} cannot be restored: {error}.") from error


def describe(manifest: Manifest) -> str:
    made = f"{manifest.created_at:%Y-%m-%d %H:%M:%S} UTC"
    return f"Vinery {manifest.version} of {made}, {manifest.database}"


def _left_out() -> list[str]:
    """A line for each part of the state that is outside of the home."""
    from django.conf import settings

    names = sorted(name for name in os.environ if name.startswith(_SECRETS))
    lines = [f"Not in the backup: {name}, which the environment sets." for name in names]
    own = settings.HOME.path / config_file.NAME
    files = [file.path for file in config_file.apply() if file.values and file.path != own]
    return lines + [f"Not in the backup: the configuration file {path}." for path in files]
