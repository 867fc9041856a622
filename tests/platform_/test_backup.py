"""The archive of a backup, how its state comes into a home, and the commands between two homes."""

import gzip
import io
import json
import re
import shutil
import signal
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
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
from vinery_platform import __version__
from vinery_platform.backup import BackupFailed, archive, postgresql, swap
from vinery_platform.backup.workspace import workspace
from vinery_platform.cli import commands
from vinery_platform.config import secret_files
from vinery_platform.config.env import SettingError
from vinery_platform.config.home import Home


def a_state(folder: Path, text: str, *, has_config: bool = False) -> Path:
    """A folder with the names of a state, whose files hold the text."""
    for name in ("vinery.sqlite3", "secrets/pepper", "usage/7-a.jsonl", "bootstrap.json"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    if has_config:
        (folder / "vinery.toml").write_text(text)
    return folder


def content(folder: Path) -> dict[str, str]:
    """The files of a state by name. Folders for running processes are left out."""
    names = ("vinery.sqlite3", "vinery.sqlite3-wal", "bootstrap.json", "vinery.toml")
    files = [folder / name for name in names] + list(folder.glob("secrets/*"))
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in [*files, *folder.glob("usage/*.jsonl")]
        if path.is_file()
    }


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """An archive of a small state."""
    target = tmp_path / "whole.tar.gz"
    manifest = archive.new_manifest("sqlite", ("accounts.0001_initial",))
    archive.write(a_state(tmp_path / "state", "new"), target, manifest, replace=False)
    return target


Members = list[tuple[tarfile.TarInfo, bytes]]
Change = Callable[[Members], None]


def changed(source: Path, change: Change) -> Path:
    with tarfile.open(source) as tar:
        members = [(info, tar.extractfile(info).read()) for info in tar]  # type: ignore[union-attr]
    change(members)
    target = source.with_name("changed.tar.gz")
    with tarfile.open(target, "w:gz") as tar:
        for info, text in members:
            info.size = len(text) if info.isreg() else 0
            tar.addfile(info, io.BytesIO(text))
    return target


def with_manifest(source: Path, **values: Any) -> Path:
    def change(members: Members) -> None:
        info, text = members[0]
        members[0] = info, msgspec.json.encode({**msgspec.json.decode(text), **values})

    return changed(source, change)


def test_an_archive_has_what_was_written_and_is_not_replaced(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()

    manifest = archive.read(whole, tmp_path / "out")
    assert content(tmp_path / "out") == content(tmp_path / "state")
    assert (manifest.version, manifest.database) == (__version__, "sqlite")
    assert manifest.migrations == ("accounts.0001_initial",)
    assert whole.stat().st_mode & 0o777 == 0o600
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}

    before, manifest = whole.read_bytes(), archive.new_manifest("sqlite", ())
    other = a_state(tmp_path / "other", "other")
    with pytest.raises(FileExistsError):
        archive.write(other, whole, manifest, replace=False)
    assert whole.read_bytes() == before

    archive.write(other, whole, manifest, replace=True)
    assert archive.read(whole).members[0].name == "bootstrap.json"
    assert whole.read_bytes() != before
    assert not list(tmp_path.glob(".whole*"))

    # A file that no backup has is not archived.
    (other / "secrets" / "my notes").write_text("")
    with pytest.raises(BackupFailed, match="my notes"):
        archive.write(other, tmp_path / "a.tar.gz", manifest, replace=False)
    assert not list(tmp_path.glob("a.tar.gz*"))


def test_a_file_system_without_links_takes_an_archive_too(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise PermissionError("links are not supported")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    state, manifest = tmp_path / "state", archive.new_manifest("sqlite", ())

    archive.write(state, tmp_path / "b.tar.gz", manifest, replace=False)

    assert archive.read(tmp_path / "b.tar.gz").members == archive.read(whole).members
    with pytest.raises(FileExistsError):
        archive.write(state, tmp_path / "b.tar.gz", manifest, replace=False)


def renamed(new: str) -> Change:
    """Rename the pepper and its entry in the manifest."""
    old = "secrets/pepper"

    def change(members: Members) -> None:
        info, text = members[0]
        members[0] = info, text.replace(old.encode(), new.encode())
        for info, _ in members:
            info.name = info.name.replace(old, new)

    return change


def to_link(members: Members) -> None:
    info, text = members[0]
    manifest = msgspec.json.decode(text)
    manifest["members"][0]["size_bytes"] = 0
    members[0] = info, msgspec.json.encode(manifest)
    members[1][0].type, members[1][0].linkname = tarfile.SYMTYPE, "/etc/passwd"


def altered(members: Members) -> None:
    info, text = members[2]
    members[2] = info, text[::-1]


OTHER_NAMES = ("../../pepper", "/tmp/pepper", "secrets/../pepper", "run/pepper", "secrets/..")


@table(
    "change, reason",
    [
        (altered, "differs from its hash"),
        (lambda members: members.pop(), "missing"),
        (lambda members: members.append((tarfile.TarInfo("extra"), b"x")), "more members"),
        (lambda members: members.pop(0), "no backup of Vinery"),
        *((renamed(name), "is no file that a backup has") for name in OTHER_NAMES),
        (to_link, "is no file that a backup has"),
    ],
)
def test_a_changed_archive_is_refused(
    whole: Path, tmp_path_factory: pytest.TempPathFactory, change: Change, reason: str
) -> None:
    folder = tmp_path_factory.mktemp("restored")
    out = folder / "a" / "b"
    out.mkdir(parents=True)

    with pytest.raises(BackupFailed, match=reason):
        archive.read(changed(whole, change), out)

    assert set(folder.rglob("pepper")) <= {out / "secrets" / "pepper"}


@table(
    "values, reason",
    [
        ({"version": "999.1"}, "version 999.1"),
        ({"format": 2, "unknown": 1}, "another format"),
        ({"unknown": 1}, "damaged"),
        ({"members": [{"name": "vinery.sqlite3", "size_bytes": 1 << 60, "sha256": ""}]}, "needs"),
        ({"members": "all"}, "damaged"),
    ],
)
def test_a_manifest_that_this_version_cannot_read_is_refused(
    whole: Path, tmp_path: Path, values: dict[str, Any], reason: str
) -> None:
    (tmp_path / "out").mkdir(exist_ok=True)

    with pytest.raises(BackupFailed, match=reason):
        archive.read(with_manifest(whole, **values), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def header_of_any_size() -> bytes:
    """A pax header may name any size, which tarfile reads at once."""
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, 1 << 40
    return gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + bytes(10_000))


@table(
    "text, reason",
    [
        (b"", "no backup of Vinery"),
        (b"no archive", "no backup of Vinery"),
        (gzip.compress(b"no tar"), "no backup of Vinery"),
        (gzip.compress(b""), "no backup of Vinery"),
        (header_of_any_size(), "too large"),
    ],
)
def test_other_files_are_no_backups(tmp_path: Path, text: bytes, reason: str) -> None:
    file = tmp_path / "a.tar.gz"
    file.write_bytes(text)

    with pytest.raises(BackupFailed, match=reason):
        archive.read(file)


@table("share", [0.1, 0.5, 0.95])
def test_an_archive_that_is_cut_off_is_refused(whole: Path, share: float) -> None:
    text = whole.read_bytes()
    cut = whole.with_name("cut.tar.gz")
    cut.write_bytes(text[: int(len(text) * share)])

    with pytest.raises(BackupFailed):
        archive.read(cut)


# The swap


class Killed(BaseException):
    """The process ends at this point."""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home with a state and a database that was not closed."""
    home = Home(tmp_path / "home")
    home.create()
    a_state(home.path, "old")
    (home.path / "vinery.sqlite3-wal").write_text("old")
    return home


def prepared(home: Home, *, has_config: bool = True) -> swap.Plan:
    staging = a_state(swap.begin(home), "new", has_config=has_config)
    return swap.new_plan(home, staging, {})


@pytest.mark.parametrize("has_config", [True, False])
def test_a_swap_keeps_the_old_state(home: Home, has_config: bool) -> None:
    (home.path / "vinery.toml").write_text("old")
    old = content(home.path)
    plan = prepared(home, has_config=has_config)

    swap.commit(home, plan)
    kept = swap.finish(home, plan)

    found = content(home.path)
    # A configuration file stays if the backup has none.
    assert found.pop("vinery.toml") == ("new" if has_config else "old")
    assert set(found.values()) == {"new"}
    assert "vinery.sqlite3-wal" not in found
    assert content(kept) == {
        name: text for name, text in old.items() if has_config or name != "vinery.toml"
    }
    assert not home.restore_plan.parent.exists()


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_kill_at_any_rename_leaves_a_swap_that_is_resumed(
    tmp_path: Path, home: Home, is_empty: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_empty:
        for name in ("vinery.sqlite3", "vinery.sqlite3-wal", "bootstrap.json"):
            (home.path / name).unlink()
    old = content(home.path)
    pristine = tmp_path / "pristine"
    shutil.copytree(home.path, pristine)
    rename_file = Path.rename
    num_done = 0
    while True:
        shutil.rmtree(home.path)
        shutil.copytree(pristine, home.path)
        plan = prepared(home)
        swap.commit(home, plan)
        left = num_done

        def rename(self: Path, target: Path) -> Path:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return rename_file(self, target)

        monkeypatch.setattr(Path, "rename", rename)
        try:
            kept = swap.finish(home, plan)
        except Killed:
            monkeypatch.setattr(Path, "rename", rename_file)
            with pytest.raises(SettingError, match="vinery restore --resume"):
                home.create()
            kept = swap.finish(home, swap.read_plan(home))
        else:
            break
        assert content(kept) == old
        assert set(content(home.path)) == {
            *("vinery.sqlite3", "secrets/pepper", "usage/7-a.jsonl"),
            *("bootstrap.json", "vinery.toml"),
        }
        assert set(content(home.path).values()) == {"new"}
        num_done += 1
    assert num_done >= 6


def test_a_kill_before_the_plan_leaves_the_old_state(home: Home) -> None:
    old = content(home.path)
    prepared(home)

    for step in (home.create, lambda: swap.begin(home)):
        step()
        assert content(home.path) == old


def test_commands_refuse_a_home_whose_restore_was_interrupted(
    platform_home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = prepared(platform_home)
    swap.commit(platform_home, plan)

    for words in (["up"], ["prepare"], ["restore", "x", "--yes"]):
        assert commands.run(words) == 2
        assert "vinery restore --resume" in capsys.readouterr().err
    # All other commands require a home first.
    with pytest.raises(SettingError, match="vinery restore --resume"):
        secret_files.require(platform_home)


@table(
    "words, reason",
    [
        (["restore", "--resume"], "was interrupted"),
        (["restore", "{tmp}/none.tar.gz"], "No such file"),
        (["restore", "--undo", "{tmp}"], "is no folder that a restore has kept"),
        (["backup", "--verify"], "Name the backup"),
        (["backup", "--verify", "{tmp}/none.tar.gz"], "No such file"),
    ],
)
def test_impossible_restores_are_refused(
    tmp_path: Path,
    platform_home: Home,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    reason: str,
) -> None:
    assert commands.run([word.format(tmp=tmp_path) for word in words]) == 1
    assert reason in capsys.readouterr().err
    assert not platform_home.restore_plan.parent.exists()


@table(
    "values, reason",
    [
        ({"migrations": ["accounts.9999_later"]}, "9999_later is unknown here"),
        ({"database": "postgresql"}, "this home uses sqlite"),
        ({}, "Add --yes to agree"),
    ],
)
def test_a_state_is_only_replaced_by_one_that_fits_and_with_consent(
    whole: Path,
    platform_home: Home,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    values: dict[str, Any],
    reason: str,
) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    old = content(platform_home.path)

    assert commands.run(["restore", str(with_manifest(whole, **values))]) == 1

    assert reason in capsys.readouterr().err
    assert content(platform_home.path) == old
    assert not platform_home.restore_plan.parent.exists()


# PostgreSQL


def test_a_failed_dump_shows_no_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = {"host": str(tmp_path), "dbname": "x", "user": "u", "password": "geheim"}

    with pytest.raises(BackupFailed, match="pg_dump failed") as caught:
        postgresql.dump(parameters, tmp_path / "database.dump")
    assert "geheim" not in str(caught.value)

    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BackupFailed, match=r"pg_dump is missing\. Install"):
        postgresql.dump(parameters, tmp_path / "database.dump")


@pytest.mark.stores
def test_a_dump_replaces_all_tables_or_none(postgres_url: str, tmp_path: Path) -> None:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    parameters = {name: str(value) for name, value in conninfo_to_dict(postgres_url).items()}
    with psycopg.connect(postgres_url, autocommit=True) as database:
        database.execute("CREATE TABLE a (id int PRIMARY KEY)")
        database.execute("INSERT INTO a VALUES (1)")
        dump = tmp_path / "database.dump"
        postgresql.dump(parameters, dump)
        database.execute("INSERT INTO a VALUES (2)")
        database.execute("CREATE TABLE later (a int REFERENCES a)")

        broken = tmp_path / "broken.dump"
        broken.write_bytes(dump.read_bytes()[:-200])
        with pytest.raises(BackupFailed):
            postgresql.load(parameters, broken)
        assert database.execute("SELECT count(*) FROM a").fetchone() == (2,)

        postgresql.load(parameters, dump)
        assert database.execute("SELECT id FROM a").fetchall() == [(1,)]
        assert database.execute("SELECT to_regclass('later')").fetchone() == (None,)


def test_a_damaged_database_is_not_backed_up(tmp_path: Path) -> None:
    from vinery_platform.backup import contents

    file = tmp_path / "vinery.sqlite3"
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("CREATE TABLE a (t text)")
        database.executemany("INSERT INTO a VALUES (?)", [("x" * 500,)] * 200)
    text = bytearray(file.read_bytes())
    text[8192:12288] = b"\xff" * 4096
    file.write_bytes(text)

    with pytest.raises(BackupFailed, match=r"damaged|cannot be copied"):
        contents._copy_sqlite(file, tmp_path / "copy")


_KILLED = """
import os, signal, sys
from pathlib import Path
from vinery_platform.backup.workspace import workspace
with workspace(Path(sys.argv[1])) as state:
    (state / "secret").write_text("secret")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_backup_removes_the_folder_of_a_killed_one_and_of_no_other(tmp_path: Path) -> None:
    killed = scripts.run_python("-c", _KILLED, str(tmp_path))
    [left] = tmp_path.iterdir()
    (tmp_path / ".vinery-backup-x" / "state").mkdir(parents=True)  # its removal was interrupted
    assert killed.returncode == -signal.SIGKILL
    assert left.stat().st_mode & 0o777 == 0o700

    with workspace(tmp_path) as state:
        assert list(tmp_path.iterdir()) == [state.parent] != [left]
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
def test_what_is_outside_of_the_home_is_named_and_a_home_in_use_is_not_replaced(
    environment: dict[str, str], tmp_path: Path
) -> None:
    config = tmp_path / "elsewhere.toml"
    config.write_text("web_workers = 1\n")
    pepper = {"VINERY_KEY_PEPPER_2": "x" * 40, "VINERY_CONFIG": str(config)}
    made = vinery("backup", "a.tar.gz", environment=environment | pepper, cwd=tmp_path)
    assert "Not in the backup: VINERY_KEY_PEPPER_2, which the environment sets." in made.stdout
    assert f"Not in the backup: the configuration file {config}." in made.stdout

    again = vinery("backup", "a.tar.gz", environment=environment, cwd=tmp_path)

    with closing(Journal.create(tmp_path / "home" / "usage")):
        refused = vinery("restore", "a.tar.gz", "--yes", environment=environment, cwd=tmp_path)

    assert made.returncode == 0, made.stderr
    assert again.returncode == 1
    assert "--force" in again.stderr
    assert refused.returncode == 2
    assert "uses the home folder" in refused.stderr


@of_two_homes
def test_an_older_backup_is_upgraded(environment: dict[str, str], tmp_path: Path) -> None:
    expected = json.loads((RELEASES / "0.1.json").read_text())
    state = tmp_path / "state"
    (state / "secrets").mkdir(parents=True)
    (state / "secrets" / "django_secret_key").write_text(expected["secret_key"])
    (state / "secrets" / "key_pepper_1").write_text(expected["pepper"])
    with closing(sqlite3.connect(state / "vinery.sqlite3")) as database:
        dump = gzip.decompress((RELEASES / "0.1.sql.gz").read_bytes()).decode()
        database.executescript(dump)
        rows = database.execute("SELECT app, name FROM django_migrations").fetchall()
    manifest = archive.Manifest("0.0.9", datetime.now(UTC), "sqlite", tuple(map(".".join, rows)))
    archive.write(state, tmp_path / "old.tar.gz", manifest, replace=False)

    home = environment | {"VINERY_HOME": str(tmp_path / "other")}
    restored = vinery("restore", "old.tar.gz", environment=home, cwd=tmp_path)

    assert restored.returncode == 0, restored.stderr
    assert "The audit log is intact" in restored.stdout
    assert "laptop" in vinery("key", "list", environment=home).stdout
