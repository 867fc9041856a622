"""A benchmark on each database: a new SQLite file, and a new PostgreSQL server if this machine has
PostgreSQL."""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.machine import REPOSITORY, free_port, show

_HOPELESS_MS = 2000.0


def on_each_database(module: str, argv: Sequence[str]) -> list[int]:
    """Run `python -m MODULE --here ARGV` on SQLite and PostgreSQL, each in a process, because
    Django knows one database. Returns the exit statuses."""
    statuses = []
    with tempfile.TemporaryDirectory(prefix="vinery-bench-") as folder:
        Path(folder).chmod(0o755)  # the postgres user must reach a folder in it
        statuses.append(_run(module, argv, folder, f"sqlite:///{folder}/vinery.sqlite3"))
        with postgresql(Path(folder)) as url:
            if url is None:
                show("PostgreSQL is not installed here, so only SQLite was measured")
            else:
                statuses.append(_run(module, argv, folder, url))
    return statuses


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
        pid = connection.connection.info.backend_pid
        used_s += int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
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


@contextmanager
def postgresql(folder: Path) -> Iterator[str | None]:
    """The URL of a temporary server; None if PostgreSQL is not installed."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    found = str(programs[-1]) if programs else shutil.which("initdb")
    if found is None:
        yield None
        return
    data, socket_folder = folder / "postgresql", folder / "socket"
    for each in (data, socket_folder):
        each.mkdir()
    as_owner: list[str] = []
    if os.geteuid() == 0:  # as which PostgreSQL refuses to run
        as_owner = ["runuser", "-u", "postgres", "--"]
        owner = pwd.getpwnam("postgres")
        for each in (data, socket_folder):
            os.chown(each, owner.pw_uid, owner.pw_gid)
    port = free_port()
    pg_ctl = [*as_owner, str(Path(found).with_name("pg_ctl")), "-D", str(data), "-s", "-w"]
    initdb = [*as_owner, found, "-D", str(data), "-A", "trust", "-U", "vinery", "-E", "UTF8"]
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c fsync=off -k {socket_folder}"
    subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, cwd=folder)
    log = str(data / "log")
    subprocess.run([*pg_ctl, "-l", log, "-o", options, "start"], check=True, cwd=folder)
    try:
        yield f"postgres://vinery@127.0.0.1:{port}/postgres"
    finally:
        subprocess.run([*pg_ctl, "-m", "immediate", "stop"], check=True, cwd=folder)
