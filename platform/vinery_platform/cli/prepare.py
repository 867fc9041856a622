"""`vinery prepare`: create or upgrade the home folder and the database. Safe to repeat."""

import argparse
import hashlib
from pathlib import Path

from vinery_platform.cli.shape import Failure, start_django
from vinery_platform.config import credentials, secret_files
from vinery_platform.config.credentials import Credentials
from vinery_platform.config.env import SettingError
from vinery_platform.config.home import Home


def run(_: argparse.Namespace) -> int:
    """Do the steps that are not done yet. Raises `SettingError` or `Failure`."""
    home = Home.from_env()
    home.create()
    secret_files.create_missing(home)
    start_django()
    from django.db import Error as DatabaseError

    from vinery_serving.models.registry import ensure_reference_model

    _refuse_bad_settings()
    try:
        _migrate()
        _create_first_credentials()
        ensure_reference_model()
    except DatabaseError as error:
        raise Failure(f"The database cannot be used: {' '.join(str(error).split())}") from error
    _collect_static_files()
    return 0


def _refuse_bad_settings() -> None:
    """Raises `SettingError` for the first error of our system checks. Ignores warnings."""
    from django.core.checks import ERROR, run_checks

    from vinery_platform.checks import VINERY

    for message in run_checks(tags=[VINERY]):
        if message.level >= ERROR:
            raise SettingError(f"{message.msg} {message.hint}")


def _migrate() -> None:
    from django.core.management import call_command
    from django.db import connection
    from django.db.migrations.executor import MigrationExecutor

    executor = MigrationExecutor(connection)
    # Without migrations to apply, the command would still spend 0.5 s on permissions.
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        call_command("migrate", interactive=False, verbosity=0)
    # The cache has no model, so migrations do not create its table.
    call_command("createcachetable", verbosity=0)


def _create_first_credentials() -> None:
    """Create the first admin and key, and `bootstrap.json` with both.

    The file is written before the commit: after a crash in between, the next start creates new
    credentials and writes it again. In the other order, the credentials would be lost.
    """
    from django.conf import settings
    from django.db import transaction

    from vinery_accounts.keys.lifecycle import ensure_first_admin, ensure_first_key

    file, base_url = settings.HOME.bootstrap_file, settings.VINERY_ADDRESS.base_url
    with transaction.atomic():
        admin, password = ensure_first_admin()
        api_key = ensure_first_key(admin)
        if password is None and api_key is None:
            credentials.update_url(file, base_url)
            return
        known = credentials.read(file) or Credentials(base_url, "", "", "")
        api_key, password = api_key or known.api_key, password or known.admin_password
        new = Credentials(base_url, api_key, admin.get_username(), password)
        credentials.write(file, new)


def _collect_static_files() -> None:
    from django.conf import settings
    from django.core.management import call_command

    stamp = settings.HOME.cache / "static.stamp"
    state = _state_of_static_files()
    if stamp.is_file() and stamp.read_text(encoding="ascii") == state:
        return
    # Maps are for developers of Swagger UI and Redoc, and twice as large as the rest.
    call_command(
        "collectstatic", interactive=False, clear=True, verbosity=0, ignore_patterns=["*.map"]
    )
    stamp.write_text(state, encoding="ascii")


def _state_of_static_files() -> str:
    """A hash of the path, size and modification time of every static file."""
    from django.contrib.staticfiles.finders import get_finders

    digest = hashlib.sha256()
    for finder in get_finders():
        for path, storage in finder.list([]):
            stat = Path(storage.path(path)).stat()
            digest.update(f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()
