"""Dumps a PostgreSQL database, and loads a dump, with PostgreSQL's own programs."""

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from vinery_platform.backup import BackupFailed

_SERVICE: Final = "service=vinery"
# Also tables that are newer than the dump, whose migrations would fail if they were still there.
_DROP_TABLES: Final = """
DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = current_schema()
    LOOP EXECUTE 'DROP TABLE ' || name || ' CASCADE'; END LOOP;
END $$
"""


def dump(parameters: Mapping[str, str], target: Path) -> None:
    """Write a dump in PostgreSQL's custom format. Raises `BackupFailed`."""
    with _service(parameters) as environment:
        options = ["--format=custom", "--no-owner", "--no-privileges", f"--file={target}"]
        _run(["pg_dump", f"--dbname={_SERVICE}", *options], environment)


def load(parameters: Mapping[str, str], dump_file: Path) -> None:
    """Replace all tables of the database by those of a dump, in one transaction. Raises
    `BackupFailed`, and then nothing changed."""
    script = dump_file.with_suffix(".sql")
    options = ["--clean", "--if-exists", "--no-owner", "--no-privileges"]
    with _service(parameters) as environment:
        _run(["pg_restore", *options, f"--file={script}", str(dump_file)], environment)
        words = ["psql", f"--dbname={_SERVICE}", "--no-psqlrc", "--quiet", "--single-transaction"]
        words += ["--set=ON_ERROR_STOP=1", f"--command={_DROP_TABLES}", f"--file={script}"]
        _run(words, environment)
    script.unlink()


def parameters_of(database: Mapping[str, Any]) -> dict[str, str]:
    """libpq's parameters of a connection with Django's settings."""
    names = {"HOST": "host", "PORT": "port", "USER": "user", "PASSWORD": "password"}
    found = {to: str(database[name]) for name, to in names.items() if database.get(name)}
    options = {name: str(value) for name, value in database["OPTIONS"].items() if name != "pool"}
    return {"dbname": str(database["NAME"]), **found, **options}


@contextmanager
def _service(parameters: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The environment of a program that connects with these parameters. They are in a file,
    because other users may read a program's arguments."""
    with tempfile.TemporaryDirectory(prefix="vinery-") as folder:
        file = Path(folder) / "service.conf"
        lines = ["[vinery]", *(f"{name}={value}" for name, value in parameters.items())]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        file.chmod(0o600)
        own = {"PGSERVICEFILE": str(file)}
        yield {**{name: each for name, each in os.environ.items() if name[:2] != "PG"}, **own}


def _run(words: Sequence[str], environment: Mapping[str, str]) -> None:
    try:
        done = subprocess.run(
            words, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
    except FileNotFoundError:
        raise BackupFailed(
            f"{words[0]} is missing. Install PostgreSQL's client programs (such as the package "
            "postgresql-client), of the server's version or newer."
        ) from None
    if done.returncode != 0:
        reason = " ".join(done.stderr.decode(errors="replace").split())
        raise BackupFailed(f"{words[0]} failed: {reason}")
