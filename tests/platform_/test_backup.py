"""The archive of a backup, and the commands between two homes."""

import gzip
import io
import json
import re
import signal
import sqlite3
import tarfile
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests import prepared_home, stores
from tests.accounts.usage_builders import admission, settlement
from tests.conftest import REPOSITORY, clean_environment
from tests.platform_ import scripts
from tests.platform_.scripts import vinery
from tests.tables import table
from vinery_accounts.usage.entries import encode
from vinery_accounts.usage.journal import Journal
from vinery_platform.operations import backup
from vinery_platform.operations.backup import BackupFailed, workspace

MANIFEST = {
    "version": "0.0.9",
    "created_at": "2026-01-02T03:04:05Z",
    "database": "sqlite",
    "migrations": ["accounts.0001_initial"],
    "format": 2,
}
MEMBERS = {
    "usage/7-a.jsonl": b"usage",
    "vinery.sqlite3": b"database",
    "secrets/key_pepper_1": b"pepper",
    "bootstrap.json": b"credentials",
}


def archive_of(
    file: Path, members: Mapping[str, bytes | tarfile.TarInfo] = MEMBERS, **values: Any
) -> Path:
    """Write an archive with these members, and a manifest with these values."""
    manifest = msgspec.json.encode(MANIFEST | values)
    with tarfile.open(file, "w:gz") as tar:
        for name, content in {backup.MANIFEST: manifest, **members}.items():
            info = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            text = content if isinstance(content, bytes) else b""
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text))
    return file


def content(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def link(name: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
    return info


OTHER_NAMES = ("../../pepper", "/tmp/pepper", "secrets/../pepper", "run/pepper", "secrets/..")
Change = Callable[[Path], object]


def replaced(text: bytes) -> Change:
    return lambda file: file.write_bytes(text)


def cut(share: float) -> Change:
    """Leave the first part of an archive."""

    def change(file: Path) -> None:
        text = archive_of(file, {**MEMBERS, "usage/big": bytes(100_000)}).read_bytes()
        file.write_bytes(text[: int(len(text) * share)])

    return change


def flip_a_bit_of_the_checksum(file: Path) -> None:
    text = bytearray(archive_of(file).read_bytes())
    text[-8] ^= 1
    file.write_bytes(text)


@table(
    "make, reason",
    [
        *(
            (partial(archive_of, members={**MEMBERS, name: b"x"}), "is no file that a backup has")
            for name in OTHER_NAMES
        ),
        (
            partial(archive_of, members={**MEMBERS, "vinery.toml": link("vinery.toml")}),
            "is no file that a backup has",
        ),
        (partial(archive_of, members={"bootstrap.json": b""}), "has no database"),
        (partial(archive_of, database="postgresql"), "has no database"),
        (partial(archive_of, version="999.1"), "version 999.1"),
        (partial(archive_of, format=3), "Install the version that made it"),
        (partial(archive_of, migrations="all"), "damaged"),
        *(
            (replaced(text), "no backup of Vinery")
            for text in (b"", b"no archive", gzip.compress(b"no tar"), gzip.compress(bytes(10_240)))
        ),
        *((cut(share), "no backup of Vinery") for share in (0.1, 0.5, 0.95)),
        (flip_a_bit_of_the_checksum, "no backup of Vinery"),
    ],
)
def test_what_is_no_whole_backup_is_refused(
    tmp_path_factory: pytest.TempPathFactory, make: Change, reason: str
) -> None:
    folder = tmp_path_factory.mktemp("restored")
    out = folder / "a" / "b"
    out.mkdir(parents=True)
    make(folder / "a.tar.gz")

    with pytest.raises(BackupFailed, match=reason):
        backup.read(folder / "a.tar.gz", out)

    assert set(folder.rglob("pepper")) == set()


# PostgreSQL


def test_a_failed_dump_shows_no_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = {"HOST": str(tmp_path), "NAME": "x", "USER": "u", "PASSWORD": "geheim"}

    with pytest.raises(BackupFailed, match="pg_dump failed") as caught:
        backup._dump(database, tmp_path / "database.dump")
    assert "geheim" not in str(caught.value)

    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BackupFailed, match=r"pg_dump is missing\. Install"):
        backup._dump(database, tmp_path / "database.dump")


@pytest.mark.stores
def test_a_dump_is_loaded_whole_or_not_at_all(postgres_url: str, tmp_path: Path) -> None:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    options = conninfo_to_dict(postgres_url)
    database = {"NAME": options.pop("dbname"), "OPTIONS": options}
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE a (id int PRIMARY KEY)")
        connection.execute("INSERT INTO a VALUES (1)")
        dump = tmp_path / "database.dump"
        backup._dump(database, dump)
        connection.execute("DROP TABLE a")

        broken = tmp_path / "broken.dump"
        broken.write_bytes(dump.read_bytes()[:-200])
        with pytest.raises(BackupFailed):
            backup.load_dump(database, broken)
        assert connection.execute("SELECT to_regclass('a')").fetchone() == (None,)

        backup.load_dump(database, dump)
        assert connection.execute("SELECT id FROM a").fetchall() == [(1,)]


def test_a_damaged_database_is_not_backed_up(tmp_path: Path) -> None:
    file = tmp_path / "vinery.sqlite3"
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("CREATE TABLE a (t text)")
        database.executemany("INSERT INTO a VALUES (?)", [("x" * 500,)] * 200)
    text = bytearray(file.read_bytes())
    text[8192:12288] = b"\xff" * 4096
    file.write_bytes(text)

    with pytest.raises(BackupFailed, match="cannot be copied"):
        backup._copy_sqlite({"NAME": file}, tmp_path / "copy")


_KILLED = """
import os, signal, sys
from pathlib import Path
from vinery_platform.operations.backup import workspace
with workspace(Path(sys.argv[1])) as state:
    (state / "secret").write_text("secret")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_backup_removes_the_folder_of_a_killed_one_and_of_no_other(tmp_path: Path) -> None:
    killed = scripts.run_python("-c", _KILLED, str(tmp_path))
    [left] = tmp_path.iterdir()
    assert killed.returncode == -signal.SIGKILL
    assert left.stat().st_mode & 0o777 == 0o700

    with workspace(tmp_path) as state:
        assert list(tmp_path.iterdir()) == [state] != [left]
        assert list(state.iterdir()) == []

    assert list(tmp_path.iterdir()) == []

    (tmp_path / ".vinery-backup-notes.txt").touch()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".vinery-backup-link").symlink_to(tmp_path / "elsewhere")

    with workspace(tmp_path) as first, workspace(tmp_path) as second:
        assert first.is_dir() and second.is_dir()
        assert list((tmp_path / "elsewhere").iterdir()) == []

    names = {path.name for path in tmp_path.iterdir()}
    assert names == {".vinery-backup-notes.txt", ".vinery-backup-link", "elsewhere"}


of_two_homes = pytest.mark.skipif(stores.IS_SCALED, reason="both homes would have one server")

RELEASES = REPOSITORY / "tests" / "releases"

_RECOVER = """
import django; django.setup()
from django.conf import settings
from vinery_accounts.models import UsageRecord
from vinery_accounts.usage.recovery import recover_orphans
recover_orphans(settings.HOME.usage)
print(sorted(UsageRecord.objects.values_list("request_id", "outcome")))
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    clean = clean_environment()
    return clean | prepared_home.copy_to(tmp_path / "home", clean)


@of_two_homes
def test_a_restore_counts_open_usage_once(environment: dict[str, str], tmp_path: Path) -> None:
    with closing(Journal.create(tmp_path / "home" / "usage")) as journal:
        journal.allocate(100_000)
        for entry in (admission("over"), settlement("over"), admission("open")):
            journal.append(encode(entry))
        made = vinery("backup", environment=environment, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    [made_file] = tmp_path.glob("vinery-backup-*.tar.gz")
    assert re.fullmatch(r"vinery-backup-\d{8}T\d{6}Z\.tar\.gz", made_file.name)
    assert made_file.stat().st_mode & 0o777 == 0o600

    other = environment | {"VINERY_HOME": str(tmp_path / "other")}
    restored = vinery("restore", str(made_file), environment=other, cwd=tmp_path)

    assert restored.returncode == 0, restored.stderr
    recovered = scripts.run_python(
        "-c", _RECOVER, environment=other | {"DJANGO_SETTINGS_MODULE": "vinery_platform.settings"}
    )
    assert recovered.stdout.strip() == "[('open', 'interrupted'), ('over', 'ok')]"
    keys, restored_keys = (vinery("key", "list", environment=each) for each in (environment, other))
    assert keys.stdout == restored_keys.stdout != ""


@of_two_homes
def test_what_is_outside_of_the_home_is_named_and_no_other_file_is_archived(
    environment: dict[str, str], tmp_path: Path
) -> None:
    config = tmp_path / "elsewhere.toml"
    config.write_text("web_workers = 1\n")
    pepper = {"VINERY_KEY_PEPPER_2": "x" * 40, "VINERY_CONFIG": str(config)}
    made = vinery("backup", "a.tar.gz", environment=environment | pepper, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert "Not in the backup: VINERY_KEY_PEPPER_2, which the environment sets." in made.stdout
    assert f"Not in the backup: the configuration file {config}." in made.stdout

    before = (tmp_path / "a.tar.gz").read_bytes()
    again = vinery("backup", "a.tar.gz", environment=environment, cwd=tmp_path)
    assert again.returncode == 1
    assert "--force" in again.stderr
    assert (tmp_path / "a.tar.gz").read_bytes() == before

    (tmp_path / "home" / "secrets" / "my notes").touch()
    other = vinery("backup", "b.tar.gz", environment=environment, cwd=tmp_path)
    assert other.returncode == 1
    assert "'secrets/my notes' is no file of Vinery" in other.stderr
    assert not list(tmp_path.glob("b.tar.gz*"))


@of_two_homes
def test_a_configuration_file_comes_with_a_backup_but_replaces_none(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "home" / "vinery.toml").write_text("web_workers = 2\n")
    assert vinery("backup", "a.tar.gz", environment=environment, cwd=tmp_path).returncode == 0
    (tmp_path / "own").mkdir(mode=0o700)
    (tmp_path / "own" / "vinery.toml").write_text("web_workers = 3\n")

    for name, workers in (("new", 2), ("own", 3)):
        home = environment | {"VINERY_HOME": str(tmp_path / name)}
        restored = vinery("restore", "a.tar.gz", environment=home, cwd=tmp_path)
        assert restored.returncode == 0, restored.stderr
        assert (tmp_path / name / "vinery.toml").read_text() == f"web_workers = {workers}\n"


@of_two_homes
def test_a_backup_that_does_not_fit_leaves_the_home_empty(
    environment: dict[str, str], tmp_path: Path
) -> None:
    home = environment | {"VINERY_HOME": str(tmp_path / "other")}
    members = {**MEMBERS, "vinery.toml": b"web_workers = 2\n"}
    dump = {**members, "database.dump": b""}
    for name, contents, values, reason in (
        ("a", members, {"migrations": ["accounts.9999_later"]}, "9999_later is unknown here"),
        ("b", dump, {"database": "postgresql"}, "this home uses sqlite"),
    ):
        version = backup.__version__
        file = archive_of(tmp_path / f"{name}.tar.gz", contents, version=version, **values)
        refused = vinery("restore", str(file), environment=home)
        assert refused.returncode == 1
        assert reason in refused.stderr
        left = [path for path in (tmp_path / "other").rglob("*") if path.is_file()]
        assert [path.name for path in left] == ["supervisor.lock"]


@of_two_homes
def test_an_older_backup_is_upgraded(environment: dict[str, str], tmp_path: Path) -> None:
    expected = json.loads((RELEASES / "0.1.json").read_text())
    file = tmp_path / backup.SQLITE
    with closing(sqlite3.connect(file)) as database:
        dump = gzip.decompress((RELEASES / "0.1.sql.gz").read_bytes()).decode()
        database.executescript(dump)
        rows = database.execute("SELECT app, name FROM django_migrations").fetchall()
    members = {
        backup.SQLITE: file.read_bytes(),
        "secrets/django_secret_key": expected["secret_key"].encode(),
        "secrets/key_pepper_1": expected["pepper"].encode(),
    }
    archive_of(tmp_path / "old.tar.gz", members, migrations=[*map(".".join, rows)])

    home = environment | {"VINERY_HOME": str(tmp_path / "other")}
    restored = vinery("restore", "old.tar.gz", environment=home, cwd=tmp_path)

    assert restored.returncode == 0, restored.stderr
    assert "The audit log is intact" in restored.stdout
    assert "laptop" in vinery("key", "list", environment=home).stdout
