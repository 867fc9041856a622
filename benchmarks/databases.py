"""A benchmark on each database: a new SQLite file, and a new PostgreSQL server if this machine has
PostgreSQL."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.machine import REPOSITORY, show


def on_each_database(module: str, argv: Sequence[str]) -> list[int]:
    """Run `python -m MODULE --here ARGV` on SQLite and PostgreSQL, each in a process, because
    Django knows one database. Returns the exit statuses."""
    statuses = []
    with tempfile.TemporaryDirectory(prefix="vinery-bench-") as folder:
        Path(folder).chmod(0o755)  # the postgres user must reach a folder in it
        statuses.append(_run(module, argv, folder, f"sqlite:///{folder}/vinery.sqlite3"))
        with _postgresql(Path(folder)) as url:
            if url is None:
                show("PostgreSQL is not installed here, so only SQLite was measured")
            else:
                statuses.append(_run(module, argv, folder, url))
    return statuses


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
def _postgresql(folder: Path) -> Iterator[str | None]:
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
    port = _free_port()
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


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
