"""`bootstrap.json` is private, and only its URL ever changes."""

import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tables import table
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


def test_another_port_changes_the_url_only_and_makes_no_file(tmp_path: Path) -> None:
    file = tmp_path / "bootstrap.json"
    credentials.update_url(file, "http://127.0.0.1:9000")
    assert credentials.read(file) is None
    assert list(tmp_path.iterdir()) == []

    credentials.write(file, FIRST)
    credentials.update_url(file, "http://127.0.0.1:9000")
    assert credentials.read(file) == replace(FIRST, base_url="http://127.0.0.1:9000")


@table("content", ["", "[]", "{}", '{"base_url": "x"}'])
def test_it_refuses_a_broken_file_by_name(tmp_path: Path, content: str) -> None:
    file = tmp_path / "bootstrap.json"
    file.write_text(content)

    with pytest.raises(SettingError, match=r"bootstrap\.json cannot be read"):
        credentials.read(file)
