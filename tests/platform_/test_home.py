"""The home folder, atomically written files, and `vinery prepare`, which keeps existing files."""

import json
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from tests.platform_ import scripts
from vinery_accounts.base.files import write_private
from vinery_platform.config.env import SettingError
from vinery_platform.config.home import Home


def test_others_cannot_open_a_home_that_keeps_its_files_and_follows_no_link(tmp_path: Path) -> None:
    home = Home(tmp_path / "deep" / "home")

    home.create()

    folders = [home.path, *home.path.iterdir()]
    assert len(folders) == 6
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}

    outside = tmp_path / "outside"
    outside.touch()
    outside.chmod(0o644)
    home = Home(tmp_path / "home")
    home.create()
    (home.path / "link").symlink_to(outside)
    (home.run / "kept").write_text("x")

    home.create()
    assert stat.S_IMODE(outside.stat().st_mode) == 0o644
    assert (home.run / "kept").read_text() == "x"


def test_an_open_home_is_closed_with_the_database_in_it(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.path.mkdir()
    home.run.mkdir()
    names = ("vinery.sqlite3", "vinery.sqlite3-wal", "bootstrap.json")
    for name in names:
        (home.path / name).touch()
        (home.path / name).chmod(0o644)
    for folder in (home.path, home.run):
        folder.chmod(0o755)

    home.create()

    modes = {name: stat.S_IMODE((home.path / name).stat().st_mode) for name in ("", "run", *names)}
    assert modes == {"": 0o700, "run": 0o700, **dict.fromkeys(names, 0o600)}


@pytest.mark.parametrize("mode", [0o1777, 0o1770])
def test_a_shared_folder_is_no_home(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(mode)

    with pytest.raises(SettingError, match="is shared with other users"):
        Home(folder).create()
    assert stat.S_IMODE(folder.stat().st_mode) == mode
    assert list(folder.iterdir()) == []


def test_no_other_folder_or_file_is_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    (tmp_path / "home").mkdir(mode=0o755)
    (tmp_path / "home").chmod(0o755)
    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(SettingError, match="belongs to another user"):
        Home(tmp_path / "home").create()

    (tmp_path / "file").write_text("")
    with pytest.raises(SettingError, match=r"VINERY_HOME=.* cannot be written"):
        Home(tmp_path / "file").create()


@pytest.mark.parametrize("replace", [True, False])
def test_a_file_replaces_the_old_one_atomically_or_never(tmp_path: Path, replace: bool) -> None:
    file = tmp_path / "file"
    file.write_text("old")

    assert write_private(file, "new", replace=replace) is replace

    assert file.read_text() == ("new" if replace else "old")
    assert list(tmp_path.iterdir()) == [file]
    assert not replace or stat.S_IMODE(file.stat().st_mode) == 0o600


def prepare(home: Path, **settings: str) -> dict[str, str]:
    """Prepare a home, and return the content of `bootstrap.json`."""
    result = scripts.vinery("prepare", environment={"VINERY_HOME": str(home)} | settings)
    assert result.returncode == 0, result.stderr
    return credentials_in(home)


def credentials_in(home: Path) -> dict[str, str]:
    known: dict[str, str] = json.loads((home / "bootstrap.json").read_text())
    return known


@pytest.fixture(scope="module")
def new_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home that was prepared once, on port 8765. Tests do not change it."""
    home = tmp_path_factory.mktemp("prepare") / "home"
    home.mkdir()
    home.chmod(0o755)  # open, until it is prepared
    prepare(home, VINERY_PORT="8765")
    return home


def test_the_first_prepare_creates_everything_for_its_user_alone(new_home: Path) -> None:
    known = credentials_in(new_home)

    assert known["base_url"] == "http://127.0.0.1:8765"
    assert known["api_key"].startswith("vny_")
    assert known["admin_user"] == "admin"
    assert len(known["admin_password"]) >= 16
    assert (new_home / "vinery.sqlite3").is_file()
    files = [new_home, *new_home.rglob("*")]
    assert [path for path in files if path.stat().st_mode & 0o077] == []


def test_the_second_prepare_corrects_only_the_url(new_home: Path, tmp_path: Path) -> None:
    home = Path(shutil.copytree(new_home, tmp_path / "home"))
    first = credentials_in(home)

    assert prepare(home, VINERY_PORT="8766") == first | {"base_url": "http://127.0.0.1:8766"}

    (home / "bootstrap.json").unlink()
    again = scripts.vinery("prepare", environment={"VINERY_HOME": str(home)})
    assert again.returncode == 0, again.stderr
    assert not (home / "bootstrap.json").exists(), "a deleted file of credentials came back"


def test_a_database_of_a_newer_version_is_refused(new_home: Path, tmp_path: Path) -> None:
    home = Path(shutil.copytree(new_home, tmp_path / "home"))
    insert = (
        "INSERT INTO django_migrations (app, name, applied) VALUES ('accounts', ?, '2026-01-01')"
    )
    with closing(sqlite3.connect(home / "vinery.sqlite3")) as database:
        database.execute(insert, ["9999_later"])
        database.commit()

    refused = scripts.vinery("prepare", environment={"VINERY_HOME": str(home)})

    assert refused.returncode == 1
    assert "newer version: 9999_later is unknown here. Run the newer version" in refused.stderr


def test_a_home_that_has_served_is_prepared_later_and_another_one_says_what_is_missing(
    new_home: Path, tmp_path: Path
) -> None:
    home = Path(shutil.copytree(new_home, tmp_path / "home"))
    away = {"VINERY_HOME": str(home), "DATABASE_URL": "postgres://vinery@127.0.0.1:9/none"}

    new = scripts.vinery("prepare", environment=away)
    assert new.returncode == 1
    assert "This home has read nothing from it to serve." in new.stderr

    (home / "cache" / "sealed").mkdir()
    (home / "cache" / "sealed" / "keys").touch()
    later = scripts.vinery("prepare", environment=away)
    assert later.returncode == 75
    assert "Keys, limits and models are those that were read last." in later.stderr


@pytest.mark.stores
def test_a_home_is_prepared_on_postgresql(tmp_path: Path, postgres_url: str) -> None:
    home = tmp_path / "home"
    known = prepare(home, DATABASE_URL=postgres_url)

    assert prepare(home, DATABASE_URL=postgres_url) == known
    assert not (home / "vinery.sqlite3").exists()
    environment = {"VINERY_HOME": str(home), "DATABASE_URL": postgres_url}
    assert "first key" in scripts.vinery("key", "list", environment=environment).stdout
