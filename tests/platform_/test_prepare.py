"""`vinery prepare`: a home folder from nothing, and nothing new the second time."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tests.platform_ import scripts


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def prepare(home: Path, **settings: str) -> dict[str, str]:
    """Prepare a home, and return what `bootstrap.json` says then."""
    told = scripts.vinery("prepare", environment={"VINERY_HOME": str(home)} | settings)
    assert told.returncode == 0, told.stderr
    known: dict[str, str] = json.loads((home / "bootstrap.json").read_text())
    return known


def test_the_first_time_makes_everything(home: Path) -> None:
    known = prepare(home, VINERY_PORT="8765")

    assert known["base_url"] == "http://127.0.0.1:8765"
    assert known["api_key"].startswith("vny_")
    assert known["admin_user"] == "admin"
    assert len(known["admin_password"]) >= 16
    assert stat.S_IMODE((home / "bootstrap.json").stat().st_mode) == 0o600
    assert (home / "static" / "admin" / "css" / "base.css").is_file()
    assert (home / "vinery.sqlite3").is_file()


def test_the_second_time_keeps_everything(home: Path) -> None:
    first = prepare(home)
    collected = (home / "static" / "admin" / "css" / "base.css").stat()

    assert prepare(home) == first
    assert (home / "static" / "admin" / "css" / "base.css").stat() == collected


def test_another_port_corrects_the_url_only(home: Path) -> None:
    first = prepare(home, VINERY_PORT="8765")

    second = prepare(home, VINERY_PORT="8766")

    assert second == first | {"base_url": "http://127.0.0.1:8766"}


def test_a_deleted_credentials_file_stays_deleted(home: Path) -> None:
    prepare(home)
    (home / "bootstrap.json").unlink()

    told = scripts.vinery("prepare", environment={"VINERY_HOME": str(home)})

    assert told.returncode == 0
    assert not (home / "bootstrap.json").exists()


def test_it_works_on_postgresql(home: Path, postgres_url: str) -> None:
    known = prepare(home, DATABASE_URL=postgres_url)

    assert prepare(home, DATABASE_URL=postgres_url) == known
    assert not (home / "vinery.sqlite3").exists()
    environment = {"VINERY_HOME": str(home), "DATABASE_URL": postgres_url}
    assert "first key" in scripts.vinery("key", "list", environment=environment).stdout
