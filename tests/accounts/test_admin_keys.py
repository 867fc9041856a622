"""Admin keys act as an administrator of the platform, and only administrators get one."""

from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.utils import timezone

from tests.accounts.api.api_client import Api, Keys, as_user, with_key
from tests.accounts.key_tables import bearer, refusal
from tests.tables import table
from vinery_accounts.access import changes
from vinery_accounts.base.errors import Refusal
from vinery_accounts.keys.lifecycle import NewKey, create_key, revoke_key
from vinery_accounts.keys.table import KeyTable
from vinery_accounts.models import ApiKey, AuditEntry, KeyState, Organization, Project, Role, User
from vinery_accounts.models.keys import in_state

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin_key(root: User, search: Project) -> NewKey:
    return create_key(owner=root, project=search, name="terraform", scopes=["admin"])


@pytest.fixture
def as_admin_key(admin_key: NewKey) -> Api:
    return with_key(admin_key)


@pytest.fixture
def path(admin_key: NewKey) -> str:
    return f"keys/{admin_key.key.pk}/"


def member_of(scope: Any, role: str) -> User:
    user = User.objects.create_user(f"{role}-of-it")
    changes.set_role(user, scope, role)
    return user


def test_an_admin_key_manages_every_organisation_and_people_and_lists_mark_it(
    as_admin_key: Api, admin_key: NewKey, acme: Organization, client: Client, new_key: Keys
) -> None:
    new = as_admin_key.post("organizations/", {"name": "Umbrella"})
    entry = AuditEntry.objects.latest("number")
    project = as_admin_key.post("projects/", {"organization": new["id"], "name": "labs"})
    robot = {"username": "robot", "is_service": True, "project": project["id"]}
    user = as_admin_key.post("users/", robot)
    of_robot = {"name": "nightly", "owner": user["id"], "project": project["id"]}
    key = as_admin_key.post("keys/", of_robot)
    limit = {"scope": "platform", "metric": "tokens", "window": "day", "amount": 1000}
    as_admin_key.post("limits/", limit)

    assert as_admin_key.column("organizations/") == ["Acme", "Umbrella"]
    assert key["owner_name"] == "robot"
    assert as_admin_key.get("audit/verify/")["is_whole"] is True
    # The audit log names the admin key.
    created = AuditEntry.objects.get(action="key.create_admin")
    assert created.target == f"terraform ({admin_key.key.hint})"
    assert created.after is not None and created.after["scopes"] == ["admin"]
    assert entry.actor == f"root, admin key terraform ({admin_key.key.hint})"
    assert entry.actor_id == admin_key.key.owner_id

    person = {"username": "carol", "password": "a long enough password", "organization": acme.pk}
    path = f"users/{as_admin_key.post('users/', person)['id']}/"

    changed = as_admin_key.patch(path, {"email": "carol@example.com"})
    assert changed["is_email_confirmed"] is True
    assert User.objects.get(username="carol").check_password(person["password"])
    assert as_admin_key.post(f"{path}deactivate/", status=200)["is_active"] is False

    new_key()
    client.force_login(admin_key.key.owner)
    assert admin_key.secret.startswith("vny_admin_")
    assert as_admin_key.column("keys/", "hint", scope="admin") == [admin_key.key.hint]
    assert client.get("/console/keys/").content.decode().count("<strong>admin key</strong>") == 1


def test_only_administrators_create_an_admin_key_and_own_one(
    root: User, search: Project, acme: Organization, path: str, client: Client
) -> None:
    chief = as_user(root)

    new = chief.post("keys/", {"name": "ci", "project": search.pk, "scopes": ["admin"]})
    newer = chief.post(f"keys/{new['id']}/rotate/", {"grace_s": 60})

    for each in (new, newer):
        assert each["secret"].startswith("vny_admin_")
        assert each["scopes"] == ["admin"]

    owner = member_of(acme, Role.OWNER)
    body = {"name": "x", "project": search.pk, "scopes": ["admin"], "owner": owner.pk}
    assert chief.error("POST", "keys/", body)[::2] == (400, "owner")
    with pytest.raises(ValidationError, match="Only administrators"):
        create_key(owner=owner, project=search, name="x", scopes=["admin"])
    plain = create_key(owner=root, project=search, name="plain").key
    assert chief.error("PATCH", f"keys/{plain.pk}/", {"scopes": ["admin"]})[::2] == (400, "scopes")
    assert chief.error("PATCH", path, {"scopes": ["inference"]})[::2] == (400, "scopes")
    assert chief.patch(path, {"scopes": ["inference", "admin"]})["scopes"] == ["inference", "admin"]

    for user, is_offered in ((root, True), (owner, False)):
        client.force_login(user)
        page = client.get("/console/keys/new/").content.decode()
        assert ('value="admin"' in page) is is_offered


def caller(name: str, admin_key: NewKey, scope: Organization) -> Api:
    """A client with the key of the administrator of this scope, or of a user with this role."""
    if name not in ("admin", "manage"):
        return as_user(member_of(scope, name.removeprefix("role ")))
    key = admin_key.key
    return with_key(create_key(owner=key.owner, project=key.project, name="x", scopes=[name]))


@table("name", [*(f"role {role}" for role in Role.values), "manage", "admin"])
def test_no_other_caller_creates_an_admin_key(
    admin_key: NewKey, search: Project, acme: Organization, name: str
) -> None:
    api = caller(name, admin_key, acme)
    body = {"name": "stolen", "project": search.pk, "scopes": ["inference", "admin"]}

    assert api.error("POST", "keys/", body)[0] == 403
    assert api.error("POST", "keys/", {**body, "owner": admin_key.key.owner_id})[0] in (400, 403)
    assert not ApiKey.objects.filter(name="stolen").exists()


@pytest.mark.parametrize("name", ["role owner", "role admin", "admin"])
def test_no_other_caller_rotates_changes_or_resumes_an_admin_key(
    admin_key: NewKey, acme: Organization, path: str, name: str
) -> None:
    api = caller(name, admin_key, acme)

    assert api.error("POST", f"{path}rotate/")[0] == 403
    assert api.error("PATCH", path, {"networks": []})[0] == 403
    assert api.error("PATCH", path, {"scopes": ["inference"]})[0] == 403
    # To stop a key is always safe.
    assert api.post(f"{path}pause/", status=200)["state"] == "paused"
    assert api.error("POST", f"{path}resume/")[0] == 403
    assert api.post(f"{path}revoke/", status=200)["state"] == "revoked"


@table("mark", ["is_superuser", "is_staff"])
def test_an_admin_key_changes_no_administrator(as_admin_key: Api, bob: User, mark: str) -> None:
    marks = {"is_superuser": False, "is_staff": False} | {mark: True}
    User.objects.filter(pk=bob.pk).update(**marks)
    path = f"users/{bob.pk}/"

    assert as_admin_key.get(path)["username"] == "bob"
    assert as_admin_key.error("PATCH", path, {"email": "mallory@example.com"})[0] == 403
    assert as_admin_key.error("POST", f"{path}deactivate/")[0] == 403
    assert as_admin_key.error("DELETE", path)[0] == 403


def test_a_demoted_administrator_s_key_is_refused(as_admin_key: Api, admin_key: NewKey) -> None:
    User.objects.create_superuser("other")
    changes.change(admin_key.key.owner, is_superuser=False)

    assert as_admin_key.error("GET", "organizations/")[:2] == (401, "invalid_api_key")
    admin_key.key.refresh_from_db()
    assert admin_key.key.paused_at is not None
    # An owner who is promoted again resumes the key explicitly.
    changes.change(admin_key.key.owner, is_superuser=True)
    assert as_admin_key.error("GET", "organizations/")[0] == 401


@pytest.mark.parametrize("manager", ["objects", "_base_manager"])
@pytest.mark.parametrize(
    ("mark", "reason"),
    [("is_superuser", Refusal.OWNER_DEMOTED), ("is_active", Refusal.OWNER_INACTIVE)],
)
def test_the_key_table_refuses_it_after_the_next_refresh(
    table: KeyTable, admin_key: NewKey, as_admin_key: Api, manager: str, mark: str, reason: Refusal
) -> None:
    """Also after plain SQL, which `_base_manager` stands for: it sets no `updated_at`."""
    plain = create_key(owner=admin_key.key.owner, project=admin_key.key.project, name="plain")
    table.refresh()
    assert table.authenticate(bearer(admin_key.secret)).username == "root"

    getattr(User, manager).filter(pk=admin_key.key.owner_id).update(**{mark: False})
    table.refresh()

    assert refusal(table, bearer(admin_key.secret)) is reason
    assert as_admin_key.error("GET", "organizations/")[0] == 401
    if reason is Refusal.OWNER_DEMOTED:
        assert table.authenticate(bearer(plain.secret)).username == "root"


@pytest.mark.stores
def test_a_demoted_administrator_s_key_has_its_own_state(admin_key: NewKey, new_key: Keys) -> None:
    plain, revoked = new_key().key, new_key("revoked").key
    revoke_key(revoked)
    User.objects.update(is_superuser=False)
    admin_key.key.owner.refresh_from_db()
    now = timezone.now()

    assert admin_key.key.state_at(now) is KeyState.OWNER_DEMOTED
    assert list(ApiKey.objects.filter(in_state(KeyState.OWNER_DEMOTED, now))) == [admin_key.key]
    assert list(ApiKey.objects.filter(in_state(KeyState.ACTIVE, now))) == [plain]
