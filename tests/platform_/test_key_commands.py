"""`vinery key` and `vinery admin`, from creation to revocation."""

import json
import re
from pathlib import Path

import pytest

from tests.platform_.conftest import Vinery


def row_of(vinery: Vinery, name: str) -> list[str]:
    """Return the cells of one key in the table."""
    lines = vinery("key", "list").stdout.splitlines()
    return next(re.split(r"\s{2,}", line) for line in lines if name in line)


def test_a_new_key_prints_only_its_secret(vinery: Vinery) -> None:
    result = vinery("key", "create", "--name", "laptop", "--expires-in", "30d")

    assert result.returncode == 0
    assert result.stdout.startswith("vny_live_")
    assert result.stdout.count("\n") == 1
    assert result.stdout.strip() not in vinery("key", "list").stdout


def test_an_admin_key_is_marked_listed_and_removed(vinery: Vinery) -> None:
    secret = vinery("key", "create", "--name", "terraform", "--scope", "admin").stdout

    assert secret.startswith("vny_admin_")
    listed = vinery("key", "list", "--scope", "admin").stdout.splitlines()
    assert ["terraform" in line for line in listed] == [False, True]
    hint = row_of(vinery, "terraform")[1]
    assert vinery("key", "remove", hint).stdout == f"Removed: terraform ({hint}).\n"
    assert "terraform" not in vinery("key", "list").stdout


@pytest.mark.parametrize("key", ["4711", "vny_live_none…xx"])
def test_an_unknown_key_cannot_be_revoked(vinery: Vinery, key: str) -> None:
    result = vinery("key", "revoke", key)

    assert result.returncode == 1
    assert result.stderr == f"vinery: There is no key {key}. See: vinery key list\n"


def test_an_administrator_gets_a_new_password(vinery: Vinery, installation: dict[str, str]) -> None:
    first = json.loads((Path(installation["VINERY_HOME"]) / "bootstrap.json").read_text())[
        "admin_password"
    ]

    result = vinery("admin", "reset-password")

    assert result.returncode == 0
    assert len(result.stdout.strip()) >= 16
    assert result.stdout.strip() != first
    refused = vinery("admin", "reset-password", "--user", "charlie")
    assert refused.returncode == 1
    assert refused.stderr == "vinery: There is no administrator charlie.\n"


def test_the_table_shows_when_a_key_is_due_to_be_rotated(vinery: Vinery) -> None:
    vinery(
        *("key", "create", "--name", "rotating"),
        *("--rotate-every", "90d", "--rotation-grace", "1w"),
    )
    hint = row_of(vinery, "rotating")[1]

    def known() -> dict[str, object]:
        rows = json.loads(vinery("key", "list", "--json").stdout)
        return next(row for row in rows if row["hint"] == hint)

    result = known()
    assert (result["rotate_every_days"], result["rotation_grace_days"]) == (90, 7)
    assert result["is_rotation_overdue"] is False
    assert result["rotation_due"] < result["expires"]  # type: ignore[operator]

    assert vinery("key", "change", hint, "--rotation-grace", "never").returncode == 0
    assert (known()["rotation_grace_days"], known()["expires"]) == (None, None)
    refused = vinery("key", "change", hint, "--rotate-every", "12h")
    assert "not a number of days" in refused.stderr
    refused = vinery("key", "create", "--name", "wrong", "--rotation-grace", "1w")
    assert refused.returncode == 1
    assert "Also set after how many days" in refused.stderr
