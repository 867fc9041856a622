"""API keys by command, from creation to revocation."""

from datetime import timedelta

import pytest
from django.utils import timezone

from tests.accounts.commands.conftest import Vinery, created_key
from tests.tables import table
from vinery_accounts.access import changes
from vinery_accounts.keys.lifecycle import create_key, find_key
from vinery_accounts.models import ApiKey, AuditEntry, KeyState, Project, Role, User

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


def test_no_key_is_created_for_a_user_without_a_role(vinery_: Vinery, search: Project) -> None:
    for name, role in (("bob", None), ("eve", Role.VIEWER)):
        user = User.objects.create_user(name)
        if role is not None:
            changes.set_role(user, search.organization, role)
        for words in ((), ("--project", "acme/search")):
            result = vinery_("key", "create", "--name", "x", "--user", name, *words)
            assert result.refusal.startswith(f"{name} is not a member of acme / search.")
        assert user.memberships.count() == (role is not None)
    assert not ApiKey.objects.exists()

    User.objects.create_superuser("root")  # needs no role
    result = vinery_("key", "create", "--name", "x", "--project", "acme/search")
    assert find_key(result.out.strip()).project == search


@table(
    "words, message",
    [
        (("--network", "office"), "Networks look like 10.0.0.0/8"),
        (("--project", "none"), "There is no project none. See: vinery project list"),
        (("--user", "bob"), "There is no active user bob."),
    ],
)
def test_an_invalid_key_is_refused(vinery_: Vinery, words: tuple[str, ...], message: str) -> None:
    assert message in vinery_("key", "create", "--name", "x", "--user", "alice", *words).refusal
    assert not ApiKey.objects.exists()


def test_keys_are_found_by_part_of_a_name_and_by_state(vinery_: Vinery, search: Project) -> None:
    for name in ("nightly", "laptop"):
        vinery_("key", "create", "--name", name, "--user", "alice")
    vinery_("key", "pause", str(ApiKey.objects.get(name="laptop").pk))
    other = changes.add(Project(organization=search.organization, name="other"))
    vinery_("user", "create", "robot", "--service", "--project", "acme/other")
    key = create_key(owner=User.objects.get(username="robot"), project=other, name="ci").key
    changes.set_active(other, is_active=False)

    def names(*words: str) -> list[str]:
        return [row["name"] for row in vinery_("key", "list", "--json", *words).rows]

    assert names("--search", "IGHT") == ["nightly"]
    assert names("--search", "robot") == names("--search", key.hint) == ["ci"]
    assert names("--state", "paused") == ["laptop"]
    assert names("--state", "active", "--search", "search") == ["nightly"]
    assert names("--state", "project-inactive") == ["ci"]
    assert all(isinstance(names("--state", each.replace(" ", "-")), list) for each in KeyState)
    heads, row = vinery_("key", "list", "--search", "nightly").out.splitlines()
    assert "ORGANIZATION  PROJECT" in heads
    assert "acme" in row


def test_only_the_named_fields_of_a_key_are_changed(vinery_: Vinery) -> None:
    words = ("--model", "small", "--network", "10.0.0.0/8", "--expires-in", "2h")
    key = created_key(vinery_, *words, "--note", "ask Ann")

    def changed(*more: str) -> ApiKey:
        assert vinery_("key", "change", str(key.pk), *more).status == 0
        return ApiKey.objects.get(pk=key.pk)

    after = changed("--name", "nightly", "--endpoint", "completions", "--any-model")
    assert (after.name, after.note) == ("nightly", "ask Ann")
    assert (after.allowed_endpoints, after.allowed_models) == (["completions"], [])
    assert (after.allowed_networks, after.expires_at) == (key.allowed_networks, key.expires_at)
    assert changed("--expires-in", "never").expires_at is None
    assert changed("--scope", "usage").scopes == ["usage"]
    assert changed("--note", "ask Bob").note == "ask Bob"
    (row,) = vinery_("key", "list", "--json").rows
    assert row["note"] == "ask Bob"
    num_entries = AuditEntry.objects.count()
    assert "is unchanged" in vinery_("key", "change", str(key.pk)).out
    assert AuditEntry.objects.count() == num_entries
    assert "10.0.0.0/8" in vinery_("key", "change", str(key.pk), "--network", "office").err
