"""The home folder, and files that are written atomically."""

import stat
from pathlib import Path

import pytest

from vinery.config.distribution import REPOSITORY
from vinery.config.env import SettingError
from vinery.config.home import Home, write_private


def test_other_users_cannot_open_the_folders(tmp_path: Path) -> None:
    home = Home(tmp_path / "deep" / "home")

    home.create()

    folders = [home.path, *home.path.iterdir()]
    assert len(folders) == 8
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}


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


def test_an_open_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    (tmp_path / "home").mkdir(mode=0o755)
    (tmp_path / "home").chmod(0o755)
    monkeypatch.setattr(Path, "chmod", refuse)

    with pytest.raises(SettingError, match="belongs to another user"):
        Home(tmp_path / "home").create()


def test_creating_a_home_again_keeps_its_files_and_follows_no_link(tmp_path: Path) -> None:
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


def test_a_file_at_the_path_of_the_home_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")

    with pytest.raises(SettingError, match=r"VINERY_HOME=.* cannot be written"):
        Home(tmp_path / "home").create()


def test_the_default_is_in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VINERY_HOME")

    assert Home.from_env().path == REPOSITORY / "var"


@pytest.mark.parametrize("replace", [True, False])
def test_a_written_file_replaces_the_old_one_atomically_or_not_at_all(
    tmp_path: Path, replace: bool
) -> None:
    file = tmp_path / "file"
    file.write_text("old")

    assert write_private(file, "new", replace=replace) is replace

    assert file.read_text() == ("new" if replace else "old")
    assert list(tmp_path.iterdir()) == [file]
    assert not replace or stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_project_folder_is_no_package() -> None:
    """As a package, `platform/` would hide the standard library's module of that name."""
    import platform

    assert not (REPOSITORY / "platform" / "__init__.py").exists()
    assert platform.python_implementation()
