"""The audit log by command."""

from datetime import datetime

import pytest
from django.db import connection

import vinery_platform.cli
from tests.accounts.commands.conftest import Vinery
from tests.tables import table
from vinery_accounts.access import changes
from vinery_accounts.access.audit import verify
from vinery_accounts.base.actors import Actor, acting_as
from vinery_accounts.models import AuditEntry, Organization, User

pytestmark = pytest.mark.usefixtures("search")


def test_changes_are_logged_and_the_log_is_verified_against_a_hash(vinery_: Vinery) -> None:
    num_before = AuditEntry.objects.count()
    vinery_("organization", "create", "other")
    vinery_(
        *["limit", "set", "--platform", "--metric", "requests", "--window", "day", "--amount", "1"]
    )

    newest = AuditEntry.objects.order_by("number")[num_before:]
    assert [entry.action for entry in newest] == ["organization.create", "limit.create"]
    assert all(entry.actor.startswith("command line (") for entry in newest)
    (row,) = vinery_("audit", "list", "--search", "other", "--json").rows
    assert (row["action"], row["target"]) == ("organization.create", "other")
    assert vinery_("audit", "list", "--num", "1").out.count("\n") == 2

    result = vinery_("audit", "verify")
    kept = verify().newest_hash
    assert result.status == 0
    assert f"Newest hash: {kept}" in result.out
    assert vinery_("audit", "verify", "--newest", kept).status == 0

    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM accounts_auditentry WHERE hash = %s", [kept])
    assert vinery_("audit", "verify").status == 0
    result = vinery_("audit", "verify", "--newest", kept)
    assert result.status == 1
    assert result.err.startswith("vinery: The audit log is broken (cut). The chain ends with entry")


def test_the_log_is_filtered_as_in_the_api(vinery_: Vinery) -> None:
    alice = User.objects.get()
    with acting_as(Actor(alice.pk, "alice, key ci")):
        other = changes.add(Organization(name="other"))
    with acting_as(Actor(None, "gone")):
        changes.change(other, name="another")

    def numbers(*words: str) -> list[int]:
        result = vinery_("audit", "list", "--json", *words)
        assert result.status == 0, result.err
        return [row["number"] for row in result.rows]

    newest = AuditEntry.objects.latest("number")
    created, changed = newest.number - 1, newest.number
    assert numbers("--actor", "alice") == numbers("--actor-id", str(alice.pk)) == [created]
    assert numbers("--actor", "gone") == [changed]
    assert numbers("--action", "organization.update") == [changed]
    assert numbers("--target", f"organization:{other.pk}") == [changed, created]
    assert numbers("--organization", "another") == [changed, created]
    since, until = newest.created_at.isoformat(), time_of(created).isoformat()
    assert changed in numbers("--from", since)
    assert created not in numbers("--to", until)
    assert numbers("--last", "1440m", "--num", "1") == [changed]


@table(
    "words, message",
    [
        *((f"audit list --num {num}", "is not a number from 1") for num in (0, -1, "x")),
        ("usage show --by key --top -1", "is not a number from 1"),
        ("refusals list --metric foo", "invalid choice"),
        ("audit list --from 2026-01-01 --last 5m", "not allowed with argument --from"),
        ("usage show --last 5y", "is not a period like 30m, 12h"),
    ],
)
def test_wrong_filters_fail(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        vinery_platform.cli.main(words.split())

    assert error.value.code == 2
    assert message in capsys.readouterr().err


def time_of(number: int) -> datetime:
    return AuditEntry.objects.get(number=number).created_at
