"""`bootstrap.json` is private, and only its URL ever changes."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from vinery.config import credentials
from vinery.config.credentials import Credentials
from vinery.config.env import SettingError

FIRST = Credentials("http://127.0.0.1:8000", "vny_key", "admin", "pass")


def test_the_file_has_the_four_names_that_clients_expect(tmp_path: Path) -> None:
    file = tmp_path / "bootstrap.json"

    credentials.write(file, FIRST)

    assert json.loads(file.read_text()) == {
        "base_url": "http://127.0.0.1:8000",
        "api_key": "vny_key",
        "admin_user": "admin",
        "admin_password": "pass",
    }
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_another_port_changes_the_url_only(tmp_path: Path) -> None:
    file = tmp_path / "bootstrap.json"
    credentials.write(file, FIRST)

    credentials.update_url(file, "http://127.0.0.1:9000")

    moved = Credentials("http://127.0.0.1:9000", "vny_key", "admin", "pass")
    assert credentials.read(file) == moved


def test_a_deleted_file_stays_deleted(tmp_path: Path) -> None:
    credentials.update_url(tmp_path / "bootstrap.json", "http://127.0.0.1:9000")

    assert credentials.read(tmp_path / "bootstrap.json") is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"base_url": "x"}'])
def test_it_refuses_a_broken_file_by_name(tmp_path: Path, content: str) -> None:
    file = tmp_path / "bootstrap.json"
    file.write_text(content)

    with pytest.raises(SettingError, match=r"bootstrap\.json cannot be read"):
        credentials.read(file)
