"""Requests in quarantine by command."""

from __future__ import annotations

from row_builders import stored_quarantined

from tests.accounts.commands.conftest import Vinery
from vinery_accounts.models import AuditEntry, QuarantinedRequest

DIGEST, OTHER = "a" * 32, "b" * 32


def test_requests_are_listed_and_released(vinery_: Vinery) -> None:
    stored_quarantined(DIGEST, username="alice", key_id=12, key_name="laptop")
    stored_quarantined(OTHER, model="other")

    heads, *lines = vinery_("quarantine", "list").out.splitlines()
    assert heads.split() == [
        *("SINCE", "DIGEST", "MODEL", "USER", "KEY", "PROJECT", "REQUEST", "ID", "EXPIRES"),
    ]
    assert len(lines) == 2
    (row,) = vinery_("quarantine", "list", "--model", "tiny-chat", "--json").rows
    assert (row["digest"], row["user"], row["key"]) == (DIGEST, "alice", "laptop")

    result = vinery_("quarantine", "release", DIGEST)

    assert (result.status, result.out) == (0, f"{DIGEST} is released.\n")
    assert [each.digest for each in QuarantinedRequest.stored.all()] == [OTHER]
    entry = AuditEntry.objects.get(action="quarantine.release")
    assert entry.actor.startswith("command line (")


def test_an_unknown_digest_is_reported(vinery_: Vinery) -> None:
    result = vinery_("quarantine", "release", DIGEST)

    assert (result.status, result.out) == (1, "")
    assert result.err.startswith(f"vinery: Nothing with the digest {DIGEST} is in quarantine.")
