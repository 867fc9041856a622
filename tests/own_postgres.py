"""A PostgreSQL server that a test may kill, and standbys that may take its place."""

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Self

import psycopg


def folder_of_programs() -> Path | None:
    """Where `initdb` and others are; None if they are not installed."""
    known = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    found = known[-1] if known else Path(shutil.which("initdb") or "").parent
    return found if (found / "initdb").exists() else None


class OwnPostgres:
    """A server on a free port of loopback. Its commits wait for its standby, once it has one."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        # PostgreSQL does not run as root, and its user cannot read pytest's folders.
        self._folder = Path(tempfile.mkdtemp(prefix="postgres-", dir="/tmp"))
        self._data = self._folder / "data"
        if os.getuid() == 0:
            shutil.chown(self._folder, "postgres")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]

    @property
    def url(self) -> str:
        return f"postgres://vinery@127.0.0.1:{self._port}/postgres"

    def __enter__(self) -> Self:
        if not self._data.exists():
            words = "--auth trust --username vinery --encoding UTF8 --no-sync"
            self._run("initdb", *words.split())
        options = f"-p {self._port} -c listen_addresses=127.0.0.1 -c fsync=off -k {self._folder}"
        self._run("pg_ctl", "--wait", "--log", f"{self._folder}/log", "--options", options, "start")
        return self

    def __exit__(self, *_: object) -> None:
        if (self._data / "postmaster.pid").exists():
            self.kill()
        shutil.rmtree(self._folder)

    def standby(self) -> "OwnPostgres":
        """Return another server, which gets all that this one commits once it has begun."""
        other = OwnPostgres(self._programs)
        words = ("--write-recovery-conf", "--checkpoint", "fast", "--dbname", self.url)
        other._run("pg_basebackup", *words)
        return other

    def wait_for_standby(self) -> None:
        """From now on each commit is also in the standby before the client hears of it."""
        from tests.conftest import until  # which sets up the environment of tests

        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            connection.execute("SELECT pg_reload_conf()")
            query = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
            until(lambda: connection.execute(query).fetchone())

    def kill(self) -> None:
        """As a crash: nothing is written, and connections break."""
        self._run("pg_ctl", "--mode", "immediate", "stop")

    def promote(self) -> None:
        """Return when the standby takes changes."""
        self._run("pg_ctl", "--wait", "promote")

    def _run(self, program: str, *words: str) -> None:
        user = ("runuser", "-u", "postgres", "--") if os.getuid() == 0 else ()
        command = [*user, self._programs / program, "--pgdata", self._data, *words]
        # A server keeps the files that it inherits: a pipe would never end.
        with (self._folder / "programs.log").open("ab") as log:
            subprocess.run(command, check=True, stdout=log, stderr=log, cwd="/", timeout=120)
