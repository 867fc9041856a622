"""Deleting a user, a key, a project or an organisation deletes all dependent rows."""

import pytest
from api.api_client import Keys, Tenant, make_tenant
from django.core.exceptions import ObjectDoesNotExist, ValidationError
from django.test import Client
from django.urls import reverse
from row_builders import logged, stored_limit
from usage_builders import store

from vinery_accounts.access import changes
from vinery_accounts.access.audit import verify
from vinery_accounts.alerts import webhooks
from vinery_accounts.keys.lifecycle import create_key
from vinery_accounts.models import AuditEntry, Limit, Membership, Role, UsageRecord, User, Webhook

pytestmark = pytest.mark.django_db


@pytest.fixture
def acme() -> Tenant:
    return make_tenant("acme")


def deleted(since: int = 0) -> list[str]:
    return logged(action__endswith=".delete", number__gt=since)


def test_a_key_is_deleted_with_its_limits_and_the_log_has_both(new_key: Keys) -> None:
    key, other = new_key().key, new_key("other").key
    gone, stays = stored_limit("key", key.pk), stored_limit("key", other.pk)
    kept = {stays, stored_limit("platform"), stored_limit("model", model="tiny-chat")}
    key_id = key.pk

    changes.remove(key)
    assert set(Limit.objects.all()) == kept
    assert deleted() == ["limit.delete", "key.delete"]
    entry = AuditEntry.objects.get(action="limit.delete")
    assert entry.target_id == str(gone.pk)
    assert (entry.before or {})["scope_id"] == key_id
    # Admins of the organisation see both.
    assert entry.organization_id == key.project.organization_id

    changes.remove(stored_limit("model", model="large"))
    assert set(Limit.objects.all()) == kept


@pytest.mark.stores
def test_a_user_is_deleted_with_keys_roles_and_limits(alice: User, bob: User, acme: Tenant) -> None:
    changes.set_role(alice, acme.organization, Role.MEMBER)
    key = create_key(owner=alice, project=acme.one, name="laptop").key
    key_id = key.pk
    stored_limit("user", alice.pk)
    stored_limit("key", key.pk)
    stored_limit("key", key.pk, metric="requests")
    # These limits have the same numbers and another scope.
    stays = [stored_limit("user", bob.pk), stored_limit("project", acme.one.pk)]
    since = AuditEntry.objects.count()

    changes.remove(alice)

    assert set(Limit.objects.all()) == set(stays)
    assert sorted(deleted(since)) == sorted(
        [*["limit.delete"] * 3, "key.delete", "membership.delete", "user.delete"]
    )
    assert deleted(since)[-1] == "user.delete"
    assert AuditEntry.objects.get(action="key.delete").target_id == str(key_id)
    with pytest.raises(ObjectDoesNotExist):
        key.refresh_from_db()
    assert verify().broken is None


def test_scopes_are_deleted_with_what_they_have(alice: User, acme: Tenant) -> None:
    changes.set_role(alice, acme.one, Role.MEMBER)
    stored_limit("project", acme.one.pk)
    stored_limit("end_user", acme.one.pk)
    since = AuditEntry.objects.count()
    changes.remove(acme.one)
    assert not Limit.objects.exists()
    assert deleted(since) == [*["limit.delete"] * 2, "membership.delete", "project.delete"]

    changes.set_role(alice, acme.organization, Role.OWNER)
    changes.add(webhooks.make("pager", "https://hooks.example.com/", acme.organization)[0])
    stored_limit("organization", acme.organization.pk)
    changes.remove(acme.two)
    since = AuditEntry.objects.count()
    changes.remove(acme.organization)
    assert not any(model.objects.exists() for model in (Limit, Membership, Webhook))
    assert deleted(since) == [
        *("limit.delete", "membership.delete", "webhook.delete", "organization.delete")
    ]


def test_a_scope_that_cannot_be_deleted_keeps_its_limits(alice: User, acme: Tenant) -> None:
    create_key(owner=alice, project=acme.one, name="laptop")
    stored_limit("project", acme.one.pk)
    stored_limit("organization", acme.organization.pk)
    since = AuditEntry.objects.count()

    for row, reason in ((acme.organization, "has projects"), (acme.one, "has keys")):
        with pytest.raises(ValidationError, match=reason):
            changes.remove(row)

    assert Limit.objects.count() == 2
    assert AuditEntry.objects.count() == since


def test_usage_records_are_kept_after_a_deletion(alice: User, acme: Tenant) -> None:
    identity = {"user_id": alice.pk, "project_id": acme.one.pk}
    identity["organization_id"] = acme.organization.pk
    store("r", **identity)

    for row in (alice, acme.one, acme.two, acme.organization):
        changes.remove(row)

    assert UsageRecord.objects.filter(**identity).count() == 1


def test_administrators_cannot_delete_themselves(client: Client, root: User) -> None:
    User.objects.create_superuser("other")
    page = reverse("admin:accounts_user_delete", args=[root.pk])
    result = client.post(page, {"post": "yes"}, follow=True).content.decode()
    assert "You cannot remove yourself." in result
    assert User.objects.filter(pk=root.pk).exists()
