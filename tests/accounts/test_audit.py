"""The audit log records every change with its actor, and no secrets."""

from datetime import timedelta

import pytest
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from isolation_tenants import rolled_back
from row_builders import logged, stored_limit

from tests.accounts.api.api_client import Keys
from tests.tables import table
from vinery_accounts.access import audit, changes
from vinery_accounts.access.audit import verify
from vinery_accounts.base.actors import (
    ACTOR,
    SYSTEM,
    Actor,
    acting_as,
    actor_middleware,
    current_actor,
)
from vinery_accounts.keys.lifecycle import pause_key, resume_key, revoke_key, rotate_key
from vinery_accounts.models import AuditEntry, ModelWeight, Organization, Project, Role, User

pytestmark = pytest.mark.django_db

ROOT = Actor(1, "root", "192.0.2.1")


def newest() -> AuditEntry:
    return AuditEntry.objects.latest("number")


def test_an_entry_has_actor_action_target_and_address(db: None) -> None:
    with acting_as(ROOT):
        organization = changes.add(Organization(name="acme"))
        changes.change(organization, name="Acme")

    entry = newest()
    assert (entry.actor_id, entry.actor, entry.ip) == (1, "root", "192.0.2.1")
    assert (entry.action, entry.target_kind) == ("organization.update", "organization")
    assert (entry.target_id, entry.target) == (str(organization.pk), "Acme")
    assert (entry.before, entry.after) == ({"name": "acme"}, {"name": "Acme"})
    assert entry.organization_id == organization.pk
    assert entry.number == 2


def test_every_change_of_a_key_is_logged(new_key: Keys, alice: User) -> None:
    key = new_key().key
    start = len(logged()) - 1
    changes.change(key, name="renamed", allowed_models=["small"])
    pause_key(key)
    pause_key(key)
    resume_key(key)
    resume_key(key)
    rotate_key(key, grace=timedelta(hours=1))
    revoke_key(key)
    revoke_key(key)

    assert [each.removeprefix("key.") for each in logged()[start:]] == [
        *("create", "update", "pause", "resume", "create", "rotate", "revoke")
    ]
    update = AuditEntry.objects.get(action="key.update")
    assert update.before == {"name": "laptop", "allowed_models": []}
    assert update.after == {"name": "renamed", "allowed_models": ["small"]}
    rotation = AuditEntry.objects.get(action="key.rotate")
    assert set(rotation.after) == {"expires_at", "replaced_by_id"}
    of_keys = AuditEntry.objects.filter(target_kind="key")
    assert {entry.organization_id for entry in of_keys} == {key.project.organization_id}


def test_changes_of_limits_weights_users_and_projects_are_logged(
    alice: User, acme: Organization, search: Project
) -> None:
    member = changes.set_role(alice, acme, Role.MEMBER)
    changes.set_role(alice, acme, Role.ADMIN)
    changes.set_role(alice, acme, Role.ADMIN)
    limit = stored_limit("project", search.pk, amount=5)
    changes.change(limit, amount=6)
    changes.remove(limit)
    weight = changes.add(ModelWeight(model="tiny-chat", output=2.5))
    changes.change(weight, cached=0.1)
    changes.set_active(alice, False)
    changes.set_active(search, False)
    changes.set_active(search, True)
    changes.remove(member)

    assert logged() == [
        *("organization.create", "project.create", "membership.create", "membership.update"),
        *("limit.create", "limit.update", "limit.delete", "weight.create", "weight.update"),
        *("user.deactivate", "project.deactivate", "project.activate", "membership.delete"),
    ]
    assert AuditEntry.objects.get(action="limit.create").target.endswith(f", project {search}")
    assert verify().broken is None
    in_acme = AuditEntry.objects.filter(organization_id=acme.pk)
    assert in_acme.count() == len(logged()) - 2  # a weight belongs to the platform


def test_no_secret_is_logged(new_key: Keys, alice: User) -> None:
    new = new_key()
    changes.set_password(alice, "correct-horse-7")
    rotated = rotate_key(new.key, grace=timedelta(0))
    person = changes.add_user("carol", password="correct-horse-8")
    person.refresh_from_db()
    changes.remove(alice)

    log = "\n".join(f"{row}" for row in AuditEntry.objects.values_list("before", "after", "target"))
    secrets = {new.secret, new.key.digest, rotated.secret, rotated.key.digest}
    for secret in secrets | {alice.password, person.password, "correct-horse"}:
        assert secret not in log
    assert "digest" not in log
    assert "user.password" in logged()


def test_no_change_is_logged_that_was_undone_or_invalid_or_changed_nothing(alice: User) -> None:
    with pytest.raises(RuntimeError), transaction.atomic():
        changes.set_active(alice, False)
        raise RuntimeError
    assert logged() == []

    changes.set_active(alice, False)
    assert verify().num_entries == 1

    acme = changes.add(Organization(name="acme"))
    stamp = acme.updated_at
    changes.change(acme, name="acme", is_active=True)

    acme.refresh_from_db()
    assert logged()[1:] == ["organization.create"]
    assert acme.updated_at == stamp

    limit = stored_limit("user", alice.pk, amount=1)
    with pytest.raises(ValidationError):
        changes.change(limit, amount=0)
    with pytest.raises(ValidationError, match="There is no project 99"):
        stored_limit("project", 99)
    limit.refresh_from_db()
    assert limit.amount == 1
    assert logged()[2:] == ["limit.create"]


def test_organisations_keep_an_owner_and_the_platform_a_superuser(alice: User, bob: User) -> None:
    acme = changes.add(Organization(name="acme"))
    first = changes.set_role(alice, acme, Role.OWNER)
    with pytest.raises(ValidationError, match="alice is the last owner of acme"):
        changes.set_role(alice, acme, Role.ADMIN)
    with pytest.raises(ValidationError, match="last owner"):
        changes.remove(first)
    changes.set_role(bob, acme, Role.OWNER)
    first.refresh_from_db()
    changes.remove(first)

    root = User.objects.create_superuser("root")
    with pytest.raises(ValidationError, match="root is the last administrator"):
        changes.set_active(root, False)
    User.objects.create_superuser("second")
    changes.set_active(User.objects.get(pk=root.pk), False)


def test_the_actor_is_the_user_of_a_request_and_else_the_system(alice: User) -> None:
    assert current_actor() is SYSTEM
    changes.set_active(alice, False)
    assert newest().actor == "system"

    request = HttpRequest()
    request.META["REMOTE_ADDR"] = "::ffff:192.0.2.7"
    seen: list[Actor] = []

    def view(_: HttpRequest) -> HttpResponse:
        seen.append(current_actor())
        return HttpResponse()

    answer = actor_middleware(view)
    answer(request)
    request.user = alice
    answer(request)
    setattr(request, ACTOR, Actor(3, "bob, key laptop"))
    answer(request)
    request.META["REMOTE_ADDR"] = ""
    del request.__dict__[ACTOR]
    answer(request)

    assert seen == [
        Actor(None, "anonymous", "192.0.2.7"),
        Actor(alice.pk, "alice", "192.0.2.7"),
        Actor(3, "bob, key laptop"),
        Actor(alice.pk, "alice", None),
    ]
    assert current_actor() is SYSTEM


async def test_the_actor_of_an_asynchronous_request_is_its_user() -> None:
    async def view(_: HttpRequest) -> HttpResponse:
        assert current_actor().name == "anonymous"
        return HttpResponse()

    assert (await actor_middleware(view)(HttpRequest())).status_code == 200


@pytest.mark.stores
def test_the_log_is_searched_by_actor_action_address_and_target(chain: list[AuditEntry]) -> None:
    def found(text: str) -> int:
        return audit.search(AuditEntry.objects.all(), text).count()

    assert found("root") == found("ORGANIZATION.") == found("192.0.2.1") == 5
    # By the new name and by the old name.
    assert found("acme 2") == 2
    assert found("create") == 1
    assert found("192.0.2.2") == found("mallory") == 0


@pytest.mark.stores
@table("text", ["Old name", "grün", 'the "best"', "a\\b", "100 %"])
def test_the_log_is_searched_in_old_and_new_values(text: str) -> None:
    with rolled_back():
        organization = changes.add(Organization(name="acme"))
        changes.change(organization, name=f"acme, {text}.")
        changes.change(organization, name="acme again")

        found = audit.search(AuditEntry.objects.filter(target="acme again"), text)

        assert [entry.before for entry in found] == [{"name": f"acme, {text}."}]
