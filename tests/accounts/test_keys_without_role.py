"""A key is paused when its owner loses the role that allowed it.

Only the pausing user resumes a key.
"""

import pytest
from django.utils import timezone

from vinery_accounts.access import changes
from vinery_accounts.access.access import Access, Action
from vinery_accounts.base.actors import Actor, acting_as
from vinery_accounts.keys.lifecycle import create_key, pause_key
from vinery_accounts.models import ApiKey, AuditEntry, KeyState, Organization, Project, Role, User
from vinery_accounts.signin.issuer import Issuer
from vinery_accounts.signin.oidc_adapter import grant

pytestmark = pytest.mark.django_db


@pytest.fixture
def acme(db: None) -> Organization:
    created = changes.add(Organization(name="acme"))
    changes.set_role(User.objects.create_user("owner"), created, Role.OWNER)
    return created


def key_of(owner: User, project: Project) -> ApiKey:
    return create_key(owner=owner, name="k", project=project).key


def another_project() -> Project:
    """A project of another organisation."""
    return changes.add(Project(organization=changes.add(Organization(name="b")), name="b"))


def state(key: ApiKey) -> KeyState:
    key.refresh_from_db()
    return key.state_at(timezone.now())


def test_superusers_and_services_need_no_role_but_those_before_do(search: Project) -> None:
    User.objects.create_superuser("other")
    root = User.objects.create_superuser("root")
    elsewhere = another_project()
    changes.set_role(root, search.organization, Role.MEMBER)
    key, other = key_of(root, search), key_of(root, elsewhere)
    changes.change(root, is_superuser=False, is_staff=False)
    assert (state(key), state(other)) == (KeyState.ACTIVE, KeyState.PAUSED)
    (entry,) = AuditEntry.objects.filter(action="key.pause")
    assert entry.target_id == str(other.pk)

    root, robot = User.objects.create_superuser("chief"), changes.add_user("robot", is_service=True)
    keys = [key_of(each, search) for each in (root, robot)]
    changes.remove(changes.set_role(root, search.organization, Role.MEMBER))
    changes.remove(changes.set_role(robot, elsewhere.organization, Role.VIEWER))
    assert [state(key) for key in keys] == [KeyState.ACTIVE] * 2


def test_keys_of_users_who_lose_their_role_are_paused(search: Project, bob: User) -> None:
    User.objects.create_superuser("other")
    issuer = Issuer(
        *("https://issuer.example", "id", "secret"),
        organization="acme",
        groups_claim="groups",
        admin_group="operators",
        roles={"staff": "member"},
    )
    grant(bob, {"groups": ["staff"]}, issuer, is_new=True)
    key = key_of(bob, search)

    for group in ("operators", "staff"):
        grant(bob, {"groups": [group]}, issuer, is_new=False)
        assert state(key) is KeyState.ACTIVE
    grant(bob, {}, issuer, is_new=False)
    assert state(key) is KeyState.PAUSED

    role = changes.set_role(bob, search.organization, Role.MEMBER)
    elsewhere = another_project()
    changes.set_role(bob, elsewhere, Role.MEMBER)
    key, other = key_of(bob, search), key_of(bob, elsewhere)
    changes.remove(role)
    assert (state(key), state(other)) == (KeyState.PAUSED, KeyState.ACTIVE)
    entry = AuditEntry.objects.order_by("-number").first()
    assert entry is not None
    assert (entry.action, entry.target_id) == ("key.pause", str(key.pk))
    for former in (Role.MEMBER, Role.ADMIN, Role.OWNER):
        changes.set_role(bob, search.organization, former)
        key = key_of(bob, search)
        changes.set_role(bob, search.organization, Role.VIEWER)
        assert state(key) is KeyState.PAUSED, former


@pytest.mark.parametrize(("by", "may"), [("bob", True), ("owner", False)])
def test_users_resume_only_keys_they_paused(search: Project, bob: User, by: str, may: bool) -> None:
    changes.set_role(bob, search.organization, Role.MEMBER)
    owner = User.objects.get(username="owner")
    key, pauser = key_of(bob, search), {"bob": bob, "owner": owner}[by]
    with acting_as(Actor(user_id=pauser.pk, name=by)):
        pause_key(key)

    assert Access.of(bob).may(Action.RESUME, key) is may
    assert Access.of(owner).may(Action.RESUME, key)
    assert Access.of(bob).may(Action.STOP, key)
