"""The home folder, and files that are written atomically."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from vinery.config.env import SettingError
from vinery.config.home import REPOSITORY, Home, write_private


def test_other_users_cannot_open_the_folders(tmp_path: Path) -> None:
    home = Home(tmp_path / "deep" / "home")

    home.create()

    folders = [home.path, *home.path.iterdir()]
    assert len(folders) == 7
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}


def test_creating_a_home_twice_changes_nothing(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.create()
    (home.run / "kept").write_text("x")

    home.create()

    assert (home.run / "kept").read_text() == "x"


def test_a_file_at_the_path_of_the_home_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")

    with pytest.raises(SettingError, match=r"VINERY_HOME=.* cannot be written"):
        Home(tmp_path / "home").create()


def test_the_default_is_in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VINERY_HOME")

    assert Home.from_env().path == REPOSITORY / "var"


def test_a_written_file_replaces_the_old_one_atomically(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")

    assert write_private(file, "new") is True

    assert file.read_text() == "new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [file]


def test_a_kept_file_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")

    assert write_private(file, "new", replace=False) is False

    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_the_project_folder_is_no_package() -> None:
    """As a package, `platform/` would hide the standard library's module of that name."""
    import platform

    assert not (REPOSITORY / "platform" / "__init__.py").exists()
    assert platform.python_implementation()
