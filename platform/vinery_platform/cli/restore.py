"""`vinery restore`: the state of a backup, into this home folder.

Nothing changes before the whole backup was checked. What was in the home is kept in a folder, so
that a restore can be undone.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from vinery_accounts.usage.journal import is_owned, journals_in
from vinery_platform.backup import BackupFailed, archive, swap
from vinery_platform.backup.archive import Manifest
from vinery_platform.backup.swap import Plan
from vinery_platform.cli import backup
from vinery_platform.cli.shape import Failure, load_django, print_line
from vinery_platform.config import config_file, env
from vinery_platform.config.env import SettingError
from vinery_platform.config.home import Home
from vinery_platform.config.setting_table import FILE_SUFFIX

_URL: Final = "DATABASE_URL"


def add_to(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("file", nargs="?", metavar="FILE", help="a backup of `vinery backup`")
    what.add_argument("--resume", action="store_true", help="finish a restore that was interrupted")
    what.add_argument(
        "--undo", metavar="FOLDER", help="go back to the state that a restore has kept in FOLDER"
    )
    parser.add_argument("--yes", action="store_true", help="replace the state without a question")


def run(arguments: argparse.Namespace) -> int:
    """Raises `SettingError` while Vinery runs, and `Failure`."""
    home = Home.from_env()
    if not arguments.resume:
        home.create()
    elif not home.restore_plan.exists():
        raise Failure(f"No restore of {home.path} was interrupted.")
    try:
        with home.locked():
            _refuse_running(home)
            return _run(arguments, home)
    except BackupFailed as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(f"The restore failed: {error}.") from error


def _run(arguments: argparse.Namespace, home: Home) -> int:
    if arguments.resume:
        return _report(home, swap.finish(home, swap.read_plan(home)))
    if arguments.undo:
        return _undo(home, Path(arguments.undo), is_agreed=arguments.yes)
    with _staging(home) as staging:
        manifest = _checked(Path(arguments.file), staging)
        plan = _plan(home, staging, manifest.database)
        print_line(f"{arguments.file} is whole: {backup.describe(manifest)}")
        _agree(home, plan, is_agreed=arguments.yes)
        kept = _swap(home, plan)
    return _report(home, kept)


def _undo(home: Home, folder: Path, *, is_agreed: bool) -> int:
    folder = folder.absolute()
    if folder.parent != home.path.absolute() or not (folder / "secrets").is_dir():
        raise Failure(f"{folder} is no folder that a restore has kept in {home.path}.")
    has_dump = (folder / archive.DUMP).exists()
    plan = _plan(home, folder, "postgresql" if has_dump else "sqlite")
    _agree(home, plan, is_agreed=is_agreed)
    return _report(home, _swap(home, plan))


@contextmanager
def _staging(home: Home) -> Iterator[Path]:
    """A folder for the new state, removed unless the plan to use it was written."""
    staging = swap.begin(home)
    try:
        yield staging
    finally:
        if not home.restore_plan.exists():
            swap.give_up(home)


def _checked(file: Path, staging: Path) -> Manifest:
    """Write the members of a backup to the folder, and check all of them. Raises `Failure`."""
    manifest = backup.read(file, staging)
    load_django()
    from django.db.migrations.loader import MigrationLoader

    known = {".".join(name) for name in MigrationLoader(None).disk_migrations}
    unknown = [name for name in manifest.migrations if name not in known]
    # Migrations of an earlier release may have been joined since.
    if unknown and not manifest.is_of_older_version:
        raise Failure(
            f"The backup's database is newer than this Vinery: {unknown[0]} is unknown here. "
            f"Install the version that made it ({manifest.version}), or a newer one."
        )
    return manifest


def _plan(home: Home, source: Path, database: str) -> Plan:
    """Raises `Failure` if this home uses another kind of database than the backup's."""
    url = _database_url(_environment(home, source))
    kind = "postgresql" if url.startswith("postgres") else "sqlite"
    if kind != database:
        raise Failure(
            f"The backup is of {database}, and this home uses {kind}. Set {_URL} for a PostgreSQL "
            "database, and leave it out for SQLite."
        )
    if url.startswith("sqlite"):
        raise Failure(f"A restore puts SQLite into the home folder. Leave out {_URL} first.")
    return swap.new_plan(home, source, _parameters(url) if url else {})


def _database_url(environment: Mapping[str, str]) -> str:
    file = environment.get(_URL + FILE_SUFFIX, "").strip()
    return Path(file).read_text(encoding="utf-8").strip() if file else environment.get(_URL, "")


def _parameters(url: str) -> dict[str, str]:
    from psycopg.conninfo import conninfo_to_dict

    return {name: str(value) for name, value in conninfo_to_dict(url).items()}


def _environment(home: Home, source: Path) -> dict[str, str]:
    """The settings of this process, with those of the configuration file that will be in the
    home instead of those of the one that is."""
    own = home.path / config_file.NAME
    new = source / config_file.NAME
    if not new.exists():
        return dict(os.environ)
    kept = {name: text for name, text in os.environ.items() if env.origin_of(name) != own}
    return {**config_file.read(new, may_name_home=False).values, **kept}


def _swap(home: Home, plan: Plan) -> Path:
    """Raises `BackupFailed` if the database refuses the dump, and then nothing changed."""
    if plan.server:
        swap.keep_dump(home, plan)
    swap.commit(home, plan)
    try:
        return swap.finish(home, plan)
    except BackupFailed:
        swap.withdraw(home, plan)
        raise


def _agree(home: Home, plan: Plan, *, is_agreed: bool) -> None:
    """Raises `Failure` unless the home is empty, or the user agrees that it is replaced."""
    has_state = (home.path / archive.SQLITE).exists() or any(home.secrets.iterdir())
    if is_agreed or not (has_state or plan.server):
        return
    if not sys.stdin.isatty():
        raise Failure(f"{home.path} has a state, which would be replaced. Add --yes to agree.")
    print_line(f"The state of {home.path} is replaced, and kept in the folder {plan.kept}.")
    if input("Go on? [y/N] ").strip().lower() not in ("y", "yes"):
        raise Failure("Nothing was changed.")


def _refuse_running(home: Home) -> None:
    """Raises `SettingError` if a process of this home runs without `vinery up`."""
    for path in journals_in(home.usage):
        if is_owned(path):
            pid = path.name.partition("-")[0]
            raise SettingError(f"Process {pid} uses the home folder {home.path}. Stop it first.")


def _report(home: Home, kept: Path) -> int:
    """Upgrade the restored database, check it, and print what to do next."""
    own = home.path / config_file.NAME
    environment = {name: text for name, text in os.environ.items() if env.origin_of(name) != own}
    environment["VINERY_HOME"] = str(home.path)
    print_line(f"Restored {home.path}. The state before is in {kept}.")
    undo = f"To go back: vinery restore --undo {kept}"
    for words in (("prepare",), ("usage", "verify", "--last", "30d"), ("audit", "verify")):
        if _command(words, environment) != 0:
            print_line(undo)
            raise Failure(f"`vinery {' '.join(words)}` failed after the restore.")
    print_line(undo)
    print("Next: vinery up. Usage journals of the backup are stored when it starts.")
    return 0


def _command(words: tuple[str, ...], environment: Mapping[str, str]) -> int:
    command = [sys.executable, "-m", "vinery_platform.cli", *words]
    return subprocess.run(command, env=environment, check=False).returncode
