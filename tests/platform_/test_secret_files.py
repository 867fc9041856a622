"""Secrets are created once, private, and never replaced; `bootstrap.json` changes only its URL."""

import json
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tables import table
from vinery_accounts.base.files import write_private
from vinery_platform.config import secret_files
from vinery_platform.config.env import SettingError
from vinery_platform.config.home import Credentials, Home


def new_home(path: Path) -> Home:
    home = Home(path)
    secret_files.create_missing(home)
    return home


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_secrets_are_private_do_not_change_and_differ_between_homes(tmp_path: Path) -> None:
    home, other = new_home(tmp_path / "home"), new_home(tmp_path / "other")

    files = sorted(file.name for file in home.secrets.iterdir())
    assert files == ["django_secret_key", "key_pepper_1"]
    assert {mode_of(home.secrets / name) for name in files} == {0o600}
    assert mode_of(home.secrets) == mode_of(home.path) == 0o700
    assert secret_files.django_key(home) != secret_files.django_key(other)
    assert secret_files.key_peppers(home) != secret_files.key_peppers(other)

    before = secret_files.django_key(home), secret_files.key_peppers(home)

    secret_files.create_missing(home)
    assert (secret_files.django_key(home), secret_files.key_peppers(home)) == before
    # Django's least length and variety.
    assert len(before[0]) >= 50
    assert len(set(before[0])) >= 5


def test_processes_that_start_together_read_the_same_secret(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(lambda _: secret_files.django_key(new_home(tmp_path)), range(32)))

    assert len(keys) == 1
    assert len(list((tmp_path / "secrets").iterdir())) == 2


def test_reading_creates_no_secret_and_one_that_cannot_be_kept_is_reported(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    assert secret_files.django_key(home) == ""
    assert secret_files.key_peppers(home) == {}
    with pytest.raises(SettingError, match=r"There is no Vinery home at .*vinery up"):
        secret_files.require(home)
    assert not home.path.exists()

    (tmp_path / "home").write_text("a file, not a folder")
    with pytest.raises(SettingError, match=r"cannot be created: .*VINERY_HOME"):
        secret_files.create_missing(home)


def test_a_home_that_lacks_one_of_its_secrets_gets_it(tmp_path: Path) -> None:
    home = new_home(tmp_path)
    key = secret_files.django_key(home)
    (home.secrets / "key_pepper_1").unlink()
    with pytest.raises(SettingError):
        secret_files.require(home)

    secret_files.create_missing(home)

    secret_files.require(home)
    assert secret_files.django_key(home) == key


def test_the_environment_overrides_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VINERY_SECRET_KEY", "k" * 50)
    monkeypatch.setenv("VINERY_KEY_PEPPER_2", "p" * 32)
    home = Home(tmp_path / "home")

    assert secret_files.django_key(home) == "k" * 50
    assert secret_files.key_peppers(home) == {2: b"p" * 32}
    monkeypatch.setenv("VINERY_KEY_PEPPER_1", "p" * 32)
    secret_files.require(home)
    secret_files.create_missing(home)
    assert not home.path.exists()


def test_old_keys_and_new_peppers_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = new_home(tmp_path)
    assert secret_files.old_django_keys(home) == []

    (home.secrets / "django_secret_key_fallbacks").write_text("first\nsecond\n")
    assert secret_files.old_django_keys(home) == ["first", "second"]

    monkeypatch.setenv("VINERY_SECRET_KEY_FALLBACKS", " third fourth ")
    assert secret_files.old_django_keys(home) == ["third", "fourth"]

    (tmp_path / "old").write_text("fifth\n")
    monkeypatch.delenv("VINERY_SECRET_KEY_FALLBACKS")
    monkeypatch.setenv("VINERY_SECRET_KEY_FALLBACKS_FILE", str(tmp_path / "old"))
    assert secret_files.old_django_keys(home) == ["fifth"]

    first = secret_files.key_peppers(home)[1]
    write_private(home.secrets / "key_pepper_2", "q" * 40 + "\n")
    assert secret_files.key_peppers(home) == {1: first, 2: b"q" * 40}
    monkeypatch.setenv("VINERY_KEY_PEPPER_1", "short")
    with pytest.raises(SettingError, match="VINERY_KEY_PEPPER_1 is too short"):
        secret_files.key_peppers(home)


FIRST = Credentials("http://127.0.0.1:8000", "vny_key", "admin", "pass")


def test_the_file_has_names_that_clients_expect_and_changes_only_the_url(tmp_path: Path) -> None:
    file = tmp_path / "bootstrap.json"
    Credentials.update_url(file, "http://127.0.0.1:9000")
    assert Credentials.read(file) is None
    assert list(tmp_path.iterdir()) == []

    FIRST.write(file)
    Credentials.update_url(file, "http://127.0.0.1:9000")
    assert Credentials.read(file) == replace(FIRST, base_url="http://127.0.0.1:9000")

    FIRST.write(file)
    found = json.loads(file.read_text())
    user = {"admin_user": "admin", "admin_password": "pass"}
    assert found == user | {"base_url": "http://127.0.0.1:8000", "api_key": "vny_key"}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@table("content", ["", "[]", "{}", '{"base_url": "x"}'])
def test_it_refuses_a_broken_file_by_name(tmp_path: Path, content: str) -> None:
    file = tmp_path / "bootstrap.json"
    file.write_text(content)

    with pytest.raises(SettingError, match=r"bootstrap\.json cannot be read"):
        Credentials.read(file)
