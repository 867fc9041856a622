"""API keys by command, from creation to revocation."""

from datetime import timedelta

import pytest
from django.utils import timezone

from tests.accounts.commands.conftest import Vinery, created_key
from vinery_accounts.keys.lifecycle import find_key
from vinery_accounts.models import ApiKey, AuditEntry, Project

pytestmark = pytest.mark.usefixtures("search")


def test_a_key_is_created_with_its_scopes_and_limits(vinery_: Vinery, search: Project) -> None:
    before = timezone.now()
    result = vinery_(
        *("key", "create", "--name", "ci", "--user", "alice", "--project", "acme/search"),
        *("--scope", "inference", "--scope", "manage", "--model", "small", "--model", "large"),
        *("--endpoint", "completions", "--network", "10.0.0.0/8", "--expires-in", "2h"),
    )

    key = find_key(result.out.strip())
    hint = "The API key of alice for acme / search. It is not shown again:"
    assert result.err == f"vinery: {hint}\n"
    assert (key.owner.username, key.project, key.name) == ("alice", search, "ci")
    assert (key.scopes, key.allowed_models) == (["inference", "manage"], ["small", "large"])
    assert (key.allowed_endpoints, key.allowed_networks) == (["completions"], ["10.0.0.0/8"])
    for number, unit in ((2, "hours"), (5, "minutes")):
        lifetime = timedelta(**{unit: number})
        key = created_key(vinery_, "--expires-in", f"{number}{unit[0]}")
        assert before + lifetime <= (key.expires_at or before) <= timezone.now() + lifetime


def test_a_key_is_created_paused_resumed_rotated_and_revoked(vinery_: Vinery) -> None:
    secret = vinery_("key", "create", "--name", "ci", "--user", "alice").out.strip()
    key = find_key(secret)

    assert vinery_("key", "pause", str(key.pk)).out == f"{key} is paused.\n"
    (row,) = vinery_("key", "list", "--json").rows
    assert (row["state"], row["project"], row["organization"]) == ("paused", "search", "acme")
    assert vinery_("key", "resume", key.hint).status == 0
    rotated = vinery_("key", "rotate", str(key.pk), "--grace", "1h")
    new = find_key(rotated.out.strip())
    assert rotated.err == f"vinery: The secret of {new} ({new.pk}). It is not shown again:\n"
    assert find_key(secret).replaced_by == new
    assert vinery_("key", "rotate", str(key.pk)).err.startswith("vinery: This key has been rotated")
    assert vinery_("key", "revoke", str(new.pk)).out == f"{new} is revoked.\n"
    for action in ("pause", "resume", "rotate"):
        assert "is revoked" in vinery_("key", action, str(new.pk)).refusal
    assert "ci" in vinery_("key", "list", "--project", "search", "--user", "alice").out
    assert "ci" not in vinery_("key", "list", "--user", "alice", "--project", "acme/none").out


def test_only_the_named_fields_of_a_key_are_changed(vinery_: Vinery) -> None:
    words = ("--model", "small", "--network", "10.0.0.0/8", "--expires-in", "2h")
    key = created_key(vinery_, *words, "--note", "ask Bob")

    def changed(*more: str) -> ApiKey:
        assert vinery_("key", "change", str(key.pk), *more).status == 0
        return ApiKey.objects.get(pk=key.pk)

    after = changed("--name", "nightly", "--endpoint", "completions", "--any-model")
    assert (after.name, after.note) == ("nightly", "ask Bob")
    assert (after.allowed_endpoints, after.allowed_models) == (["completions"], [])
    assert (after.allowed_networks, after.expires_at) == (key.allowed_networks, key.expires_at)
    assert changed("--expires-in", "never").expires_at is None
    assert changed("--scope", "usage").scopes == ["usage"]
    (row,) = vinery_("key", "list", "--json").rows
    assert row["note"] == "ask Bob"
    num_entries = AuditEntry.objects.count()
    assert "is unchanged" in vinery_("key", "change", str(key.pk)).out
    assert AuditEntry.objects.count() == num_entries
    assert "10.0.0.0/8" in vinery_("key", "change", str(key.pk), "--network", "office").err
