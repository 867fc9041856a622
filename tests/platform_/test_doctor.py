"""`vinery doctor` and system checks find what is wrong, name a cure, and create nothing."""

import json
import os
import resource
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import CheckMessage, Tags, run_checks
from pytest_django import Settings

from tests.platform_ import scripts
from tests.tables import table
from vinery_platform.cli import doctor
from vinery_platform.cli.doctor import Finding, Level
from vinery_platform.config.home import Home
from vinery_platform.config.servers import database
from vinery_platform.processes.listening import Address, listen
from vinery_platform.web import apps as checks


def diagnosis(environment: Mapping[str, str]) -> tuple[int, dict[str, Finding]]:
    """Return the exit status and the findings by check."""
    result = scripts.vinery("doctor", "--json", environment=environment)
    found = [Finding(**row) for row in json.loads(result.stdout)]
    return result.returncode, {finding.check: finding for finding in found}


def test_it_works_without_a_home_and_makes_none(tmp_path: Path) -> None:
    home = tmp_path / "none"
    environment = {"VINERY_HOME": str(home), "VINERY_PORT": "0"}

    status, found = diagnosis(environment)

    assert status == 0
    assert found["home"].level == Level.OK
    assert "does not exist yet" in found["home"].text
    assert found["devices"].text.startswith("CPU")
    assert found["database"].text.startswith("There is none yet")
    assert found["public URL"].text.startswith("none")
    assert not home.exists()

    # A wrong setting is a failure among other findings.
    for check, wrong in (
        ("settings", {"VINERY_AUTH": "perhaps"}),
        ("configuration", {"VINERY_CONFIG": "/none.toml"}),
    ):
        status, found = diagnosis(environment | wrong)
        assert status == 1
        assert found[check].level == Level.FAILURE
        assert found["openvino"].level == Level.OK


def test_a_prepared_home_has_no_failure_and_a_sum_for_people(installation: dict[str, str]) -> None:
    environment = {**installation, "VINERY_PORT": "0"}

    status, found = diagnosis(environment)

    assert status == 0
    assert found["secrets"].level == Level.OK
    assert found["schema"].text == "It is up to date."
    shown = scripts.vinery("doctor", environment={**environment, "VINERY_PROT": "1"}).stdout
    assert "warning  environment     VINERY_PROT is no setting" in shown
    assert "cure: Did you mean VINERY_PORT?" in shown
    assert shown.splitlines()[-1].endswith(" failures")


def test_every_warning_and_failure_has_a_cure(tmp_path: Path) -> None:
    with listen(Address("127.0.0.1", 0)) as used:
        port = str(used.getsockname()[1])
        (tmp_path / "home" / "secrets").mkdir(parents=True, mode=0o700)
        (tmp_path / "home").chmod(0o755)

        home = {"VINERY_HOME": str(tmp_path / "home"), "VINERY_HOST": "127.0.0.1"}
        database = {"DATABASE_URL": "postgres://unknown@127.0.0.1:9/none"}
        others = {"VINERY_PORT": port, "VINERY_PROT": "1", "REDIS_URL": "redis://127.0.0.1:9/0"}
        status, found = diagnosis(home | database | others)

    bad = {check: finding for check, finding in found.items() if finding.level != Level.OK}
    assert status == 1
    assert bad.keys() == {"environment", "home", "secrets", "port", "database", "redis"}
    assert all(finding.cure for finding in bad.values())
    assert "VINERY_PORT" in bad["environment"].cure
    assert bad["home"].cure == f"chmod 700 {tmp_path / 'home'}"


@table(
    "host, public_url, level, word",
    [
        ("127.0.0.1", "", Level.OK, "none"),
        ("0.0.0.0", "", Level.WARNING, "without TLS"),
        ("0.0.0.0", "http://v.example", Level.WARNING, "without TLS"),
        ("0.0.0.0", "https://v.example", Level.WARNING, "trusted"),
    ],
)
def test_an_address_for_others_needs_tls_and_a_trusted_proxy(
    settings: Any, host: str, public_url: str, level: Level, word: str
) -> None:
    settings.VINERY_ADDRESS, settings.VINERY_PUBLIC_URL = Address(host, 0), public_url

    [found] = doctor.public_url()

    assert found.level == level
    assert word in found.text


# -- The machine ----------------------------------------------------------------------------


def levels(findings: Iterator[Finding]) -> dict[str, Level]:
    return {finding.check: finding.level for finding in findings}


def test_a_device_not_found_has_its_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = tmp_path / "renderD128"
    node.touch()

    found = doctor._driver("GPU", [node], ["CPU"])
    assert found.level is Level.WARNING
    assert "intel-opencl-icd" in found.cure
    assert doctor._driver("GPU", [node], ["CPU", "GPU.0"]).level is Level.OK
    assert doctor._driver("NPU", [], ["CPU"]).level is Level.OK

    monkeypatch.setattr(os, "access", lambda *_: False)  # root may open all
    found = doctor._driver("GPU", [node], ["CPU"])
    assert found.level is Level.WARNING
    assert "usermod -aG render" in found.cure


# -- The home -------------------------------------------------------------------------------


def test_a_home_needs_secrets_beside_data_and_space(
    platform_home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert levels(doctor.secrets()) == {"secrets": Level.OK}
    assert levels(doctor.disk()) == {"disk": Level.OK}
    monkeypatch.setenv("VINERY_MIN_FREE_DISK_MB", "1000000")
    assert levels(doctor.disk()) == {"disk": Level.WARNING}

    # A home that holds only settings has no secrets yet.
    monkeypatch.setenv("VINERY_HOME", str(tmp_path))
    (tmp_path / "vinery.toml").write_text("port = 0\n")
    assert levels(doctor.secrets()) == {"secrets": Level.OK}

    (tmp_path / "vinery.sqlite3").touch()
    assert levels(doctor.secrets()) == {"secrets": Level.FAILURE}


def ids(messages: Iterable[CheckMessage]) -> list[str]:
    return sorted(message.id or "" for message in messages)


def test_a_usual_set_up_and_the_pages_of_the_admin_pass() -> None:
    assert run_checks(tags=[checks.VINERY]) == []

    # The URLs import the admin classes. Django runs checks in any order, perhaps before the import.
    import_module("vinery_platform.urls")
    assert run_checks(tags=[Tags.admin]) == []


def test_findings_have_hints_and_local_access_is_none(settings: Settings) -> None:
    settings.VINERY_AUTH_ENABLED = False
    settings.DEBUG = True
    settings.VINERY_ADDRESS = Address("0.0.0.0", 8000)

    found = run_checks(tags=[checks.VINERY])

    assert ids(found) == ["vinery.E002", "vinery.E004"]
    assert all(message.hint for message in found)
    for host in ("127.0.0.1", "::1", "localhost"):
        settings.VINERY_ADDRESS = Address(host, 8000)
        assert ids(checks.open_access_is_local()) == [], host


def test_nfs_and_few_open_files_warn(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks.filesystem_of(Path("/proc/self/not/there")) == "proc"

    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.setattr(checks, "filesystem_of", lambda _: "nfs4")
    sqlite = database(Home(Path("/srv/vinery")))
    monkeypatch.setitem(settings.DATABASES, "default", sqlite)
    assert ids(checks.sqlite_is_on_a_local_disk()) == ["vinery.W001"]

    postgresql = sqlite | {"ENGINE": "django.db.backends.postgresql"}
    monkeypatch.setitem(settings.DATABASES, "default", postgresql)
    assert ids(checks.sqlite_is_on_a_local_disk()) == []

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 256))
    assert ids(checks.enough_files_can_be_open()) == ["vinery.W002"]
    monkeypatch.setattr(resource, "getrlimit", lambda _: (4096, 4096))
    assert ids(checks.enough_files_can_be_open()) == []
