"""System checks report dangerous settings, and print nothing for good ones."""

import resource
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

import pytest
from django.core.checks import CheckMessage, Tags, run_checks
from pytest_django import Settings

from tests.tables import table
from vinery import checks
from vinery.config.home import Home
from vinery.process.listening import Address
from vinery.settings.servers import database


def ids(messages: Iterable[CheckMessage]) -> list[str]:
    return sorted(message.id or "" for message in messages)


def test_a_usual_set_up_passes(settings: Settings, tmp_path: Path) -> None:
    settings.HOME = Home(tmp_path)

    assert run_checks(tags=[checks.VINERY]) == []


def test_the_pages_of_the_admin_pass_the_checks_of_django() -> None:
    # The URLs import them. Django runs its checks in any order, so it may do so too late.
    import_module("vinery.urls")

    assert run_checks(tags=[Tags.admin]) == []


def test_every_finding_has_a_hint(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    settings.HOME = Home(tmp_path / "home")
    settings.VINERY_AUTH_ENABLED = False
    settings.DEBUG = True
    settings.VINERY_ADDRESS = Address("0.0.0.0", 8000)

    found = run_checks(tags=[checks.VINERY])

    assert ids(found) == ["vinery.E001", "vinery.E002", "vinery.E004"]
    assert all(message.hint for message in found)


@table("host", ["127.0.0.1", "::1", "localhost"])
def test_open_access_is_allowed_on_this_machine(settings: Settings, host: str) -> None:
    settings.VINERY_AUTH_ENABLED = False
    settings.VINERY_ADDRESS = Address(host, 8000)

    assert ids(checks.open_access_is_local()) == []


def test_sqlite_on_a_network_file_system_is_a_warning(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.setattr(checks, "filesystem_of", lambda _: "nfs4")
    sqlite = database(Home(Path("/srv/vinery")))
    monkeypatch.setitem(settings.DATABASES, "default", sqlite)
    assert ids(checks.sqlite_is_on_a_local_disk()) == ["vinery.W001"]

    postgresql = sqlite | {"ENGINE": "django.db.backends.postgresql"}
    monkeypatch.setitem(settings.DATABASES, "default", postgresql)
    assert ids(checks.sqlite_is_on_a_local_disk()) == []


def test_the_file_system_of_a_missing_path_is_found() -> None:
    assert checks.filesystem_of(Path("/proc/self/not/there")) == "proc"


@pytest.mark.parametrize(("limit", "found"), [(256, ["vinery.W002"]), (4096, [])])
def test_a_low_limit_of_open_files_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, limit: int, found: list[str]
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))

    assert ids(checks.enough_files_can_be_open()) == found
