"""A benchmark on each database: a new SQLite file, and a new PostgreSQL server if this machine has
PostgreSQL."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

from benchmarks.machine import REPOSITORY, process_s, show
from tests.own_postgres import OwnPostgres, folder_of_programs

_HOPELESS_MS = 2000.0


def on_each_database(module: str, argv: Sequence[str]) -> list[int]:
    """Run `python -m MODULE --here ARGV` on SQLite and PostgreSQL, each in a process, because
    Django knows one database. Returns the exit statuses."""
    with tempfile.TemporaryDirectory(prefix="vinery-bench-") as folder:
        statuses = [_run(module, argv, folder, f"sqlite:///{folder}/vinery.sqlite3")]
        if (programs := folder_of_programs()) is None:
            show("PostgreSQL is not installed here, so only SQLite was measured")
            return statuses
        with OwnPostgres(programs) as server:
            return [*statuses, _run(module, argv, folder, server.url)]


def is_in_time(name: str, work: Callable[[], object], allowed_ms: float, num_times: int) -> bool:
    """Print the best time of some. The first fills caches, and what else runs here only adds."""
    took = [took_ms(work)]
    while len(took) < num_times and took[0] < _HOPELESS_MS:
        took.append(took_ms(work))
    much = "" if min(took) <= allowed_ms else "  TOO LONG"
    print(f"{name:76}{min(took):9.1f} of {allowed_ms:.0f} ms{much}", flush=True)
    return min(took) <= allowed_ms


def took_ms(work: Callable[[], object]) -> float:
    before_s = _used_s()
    work()
    return (_used_s() - before_s) * 1000


def _used_s() -> float:
    """The processor time of this process, and of the process of PostgreSQL that serves it."""
    from django.db import connection

    used_s = time.process_time()
    if connection.vendor == "postgresql":
        connection.ensure_connection()
        used_s += process_s(connection.connection.info.backend_pid)
    return used_s


def set_up_django() -> None:
    """In the process of a database: settings, and all tables."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "vinery_platform.settings"
    import django

    from vinery_platform.config import secret_files
    from vinery_platform.config.home import Home

    Home.from_env().create()
    secret_files.create_missing(Home.from_env())
    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


def _run(module: str, argv: Sequence[str], folder: str, url: str) -> int:
    environment = {
        **os.environ,
        "DATABASE_URL": url,
        "VINERY_HOME": f"{folder}/home",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, "-m", module, "--here", *argv]
    return subprocess.run(command, env=environment, cwd=REPOSITORY, check=False).returncode
