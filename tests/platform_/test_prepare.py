"""`vinery prepare` creates a home folder, and keeps an existing one."""

import json
import shutil
from pathlib import Path

import pytest

from tests.platform_ import scripts


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


@pytest.fixture
def home(new_home: Path, tmp_path: Path) -> Path:
    """Return a copy of `new_home`."""
    return Path(shutil.copytree(new_home, tmp_path / "home"))


def test_the_first_prepare_creates_everything_for_its_user_alone(new_home: Path) -> None:
    known = credentials_in(new_home)

    assert known["base_url"] == "http://127.0.0.1:8765"
    assert known["api_key"].startswith("vny_")
    assert known["admin_user"] == "admin"
    assert len(known["admin_password"]) >= 16
    assert (new_home / "static" / "admin" / "css" / "base.css").is_file()
    assert (new_home / "vinery.sqlite3").is_file()
    files = [new_home, *new_home.rglob("*")]
    assert [path for path in files if path.stat().st_mode & 0o077] == []


def test_the_second_prepare_corrects_only_the_url(home: Path) -> None:
    first = credentials_in(home)
    collected = (home / "static" / "admin" / "css" / "base.css").stat()

    assert prepare(home, VINERY_PORT="8766") == first | {"base_url": "http://127.0.0.1:8766"}
    assert (home / "static" / "admin" / "css" / "base.css").stat() == collected

    (home / "bootstrap.json").unlink()
    scripts.vinery("prepare", environment={"VINERY_HOME": str(home)})
    assert not (home / "bootstrap.json").exists(), "a deleted file of credentials came back"


@pytest.mark.stores
def test_a_home_is_prepared_on_postgresql(tmp_path: Path, postgres_url: str) -> None:
    home = tmp_path / "home"
    known = prepare(home, DATABASE_URL=postgres_url)

    assert prepare(home, DATABASE_URL=postgres_url) == known
    assert not (home / "vinery.sqlite3").exists()
    environment = {"VINERY_HOME": str(home), "DATABASE_URL": postgres_url}
    assert "first key" in scripts.vinery("key", "list", environment=environment).stdout
