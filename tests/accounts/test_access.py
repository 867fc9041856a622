"""Rows that a user may see, and actions that a user may do, by role and scope."""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, Group
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from isolation_tenants import rolled_back
from pytest_django import DjangoDbBlocker
from row_builders import stored_limit

from tests.tables import table
from vinery_accounts import models
from vinery_accounts.access import changes, served
from vinery_accounts.access.access import Access, Action
from vinery_accounts.access.audit import record
from vinery_accounts.access.served import Served
from vinery_accounts.base.actors import Actor
from vinery_accounts.keys.lifecycle import create_key
from vinery_accounts.models import ApiKey, AuditEntry, Limit, Organization, Project, Role, User
from vinery_accounts.usage.filters import Dimension

pytestmark = pytest.mark.django_db

WHOLE = ("viewer", "member", "admin", "owner")
SINGLE = tuple(f"project {role}" for role in WHOLE)
ALL_USERS = (*WHOLE, *SINGLE, "stranger", "superuser")


@dataclass
class Scenario:
    """Two organisations with two projects each. All have the same kinds of rows."""

    rows: dict[str, Any]
    people: dict[str, User]

    def access(self, actor: str) -> Access:
        return Access.of(self.people[actor])

    def key_of(self, actor: str, *scopes: str) -> ApiKey:
        """A new key of a user in the first project."""
        more = {"scopes": list(scopes)} if scopes else {}
        owner, project = self.people[actor], self.rows["project one"]
        return create_key(owner=owner, name="own", project=project, **more).key

    def allowed(self, access: Access, action: Action) -> set[str]:
        """The names of allowed rows; for `MANAGE`, also of rows that are not stored."""
        rows = {name: row for name, row in self.rows.items() if row.pk or action is Action.MANAGE}
        return {name for name, row in rows.items() if access.may(action, row)}


def fill(name: str) -> dict[str, Any]:
    """Create an organisation `name` with the projects `one` and `two`, and its users."""
    organization = changes.add(Organization(name=name))
    projects = [Project(organization=organization, name=each) for each in ("one", "two")]
    one, two = map(changes.add, projects)
    person = changes.add_user(f"{name}-person", scope=organization, role=Role.VIEWER)
    service = changes.add_user(f"{name}-service", is_service=True, scope=one)
    key = create_key(owner=person, name="key", project=one).key
    return {
        "organization": organization,
        "project one": one,
        "project two": two,
        "person": person,
        "service": service,
        "member of all": person.memberships.get(),
        "member of one": service.memberships.get(),
        "key in one": key,
        "key in two": create_key(owner=service, name="key", project=two).key,
        "limit of organization": stored_limit("organization", organization.pk),
        "limit of one": stored_limit("project", one.pk),
        "limit of key": stored_limit("key", key.pk),
        "limit of person": stored_limit("user", person.pk),
    }


@pytest.fixture(scope="module")
def stored(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Scenario]:
    """The scenario, stored once: the rows take longer than all tests. Changes are undone."""
    with django_db_blocker.unblock(), transaction.atomic():
        yield new_scenario()
        transaction.set_rollback(True)


@pytest.fixture
def scenario(stored: Scenario, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    models = [Served("tiny-chat")]
    for name in ("one", "two"):
        models.append(Served(f"of {name}", [stored.rows[f"project {name}"].pk]))
    monkeypatch.setattr(served, "_readers", [lambda: models])
    return deepcopy(stored)


def new_scenario() -> Scenario:
    ours, theirs = fill("ours"), fill("theirs")
    one = ours["project one"]
    people = {actor: User.objects.create_user(actor.replace(" ", "-")) for actor in ALL_USERS}
    for role in WHOLE:
        changes.set_role(people[role], one.organization, role)
        changes.set_role(people[f"project {role}"], one, role)
    User.objects.filter(pk=people["superuser"].pk).update(is_superuser=True)
    people["superuser"].refresh_from_db()
    rows = ours | {f"their {name}": row for name, row in theirs.items()}
    rows["limit of platform"] = stored_limit("platform")
    rows["limit of model"] = stored_limit("model", model="tiny-chat")
    rows["limit of a model of one"] = stored_limit("model", model="of one")
    rows["weight of a model of two"] = changes.add(models.ModelWeight(model="of two"))
    rows["limit of a removed model"] = stored_limit("model", model="removed")
    rows["weight"] = changes.add(models.ModelWeight(model="tiny-chat"))
    rows["new organization"] = Organization(name="new")
    rows["new project"] = Project(organization=one.organization, name="new")
    rows["new owner"] = changes.membership_of(people["stranger"], one.organization, Role.OWNER)
    rows["new owner of one"] = changes.membership_of(people["stranger"], one, Role.OWNER)
    return Scenario(rows, people)


# The rows of our organisation that each user sees. They see no other rows.
PARTS_OF_ONE = {
    *("project one", "member of one", "key in one", "limit of one", "limit of key"),
    "limit of a model of one",
}
FOR_ALL = {"limit of platform", "limit of model", "weight"}
SEEN_IN_ALL = {
    *PARTS_OF_ONE,
    *FOR_ALL,
    *("organization", "project two", "key in two", "person", "service", "member of all"),
    *("limit of organization", "limit of person", "weight of a model of two"),
}
SEEN_IN_ONE = {*PARTS_OF_ONE, *FOR_ALL, "organization", "service", "limit of organization"}


NOTHING: set[str] = set()
ADMIN_OF_ONE = {"project one", "key in one", "service", "limit of key"}
ADMIN_OF_ALL = {*ADMIN_OF_ONE, "project two", "new project", "key in two", "limit of one"}
MANAGED = {
    "viewer": NOTHING,
    "member": NOTHING,
    "admin": {*ADMIN_OF_ALL, "limit of person"},
    "owner": {
        *ADMIN_OF_ALL,
        *("limit of person", "person", "member of all", "member of one"),
        *("new owner", "new owner of one"),
    },
    "project viewer": NOTHING,
    "project member": NOTHING,
    "project admin": ADMIN_OF_ONE,
    "project owner": {*ADMIN_OF_ONE, "member of one", "new owner of one"},
    "stranger": NOTHING,
}


@table("actor", ALL_USERS)
def test_each_user_sees_and_manages_the_rows_of_their_role(scenario: Scenario, actor: str) -> None:
    access = scenario.access(actor)
    seen, managed = (scenario.allowed(access, each) for each in (Action.VIEW, Action.MANAGE))

    if actor == "superuser":
        assert seen == {name for name, row in scenario.rows.items() if row.pk is not None}
        # An invitation is answered by the invited user alone.
        actions = set(Action) - {Action.ANSWER}
        assert all(access.may(action, row) for action in actions for row in scenario.rows.values())
    else:
        role_sees = SEEN_IN_ALL if actor in WHOLE else SEEN_IN_ONE
        assert seen == (FOR_ALL if actor == "stranger" else role_sees)
        assert managed == MANAGED[actor]


@table(
    "actor, makes, stops",
    [
        ("viewer", False, True),
        ("member", True, True),
        ("admin", True, True),
        ("project viewer", False, True),
        ("project member", True, True),
        ("stranger", False, True),
    ],
)
def test_rights_on_own_keys_follow_the_role_and_admins_alone_stop_keys_of_others(
    scenario: Scenario, actor: str, makes: bool, stops: bool
) -> None:
    mine = scenario.key_of(actor)
    access = scenario.access(actor)

    assert access.may(Action.VIEW, mine)
    assert access.may(Action.MANAGE, mine) is makes
    assert access.may(Action.STOP, mine) is stops
    assert access.may(Action.STOP, scenario.rows["key in one"]) is (actor == "admin")


@table(
    "action, what",
    [
        (Action.SWITCH, "organization"),
        *((Action.REMOVE, what) for what in ("organization", "person", "service")),
    ],
)
def test_only_superusers_switch_and_remove(scenario: Scenario, action: Action, what: str) -> None:
    row = scenario.rows[what]

    assert {each for each in ALL_USERS if scenario.access(each).may(action, row)} == {"superuser"}


def test_an_owner_manages_no_one_of_more_rights_or_organisations(scenario: Scenario) -> None:
    owner, person = scenario.access("owner"), scenario.rows["person"]
    assert not owner.may(Action.MANAGE, scenario.people["owner"])
    for is_superuser, is_staff in ((True, False), (False, True), (False, False)):
        User.objects.filter(pk=person.pk).update(is_superuser=is_superuser, is_staff=is_staff)
        person.refresh_from_db()
        assert owner.may(Action.MANAGE, person) is not (is_superuser or is_staff)

    changes.set_role(person, scenario.rows["their organization"], Role.VIEWER)

    assert not owner.may(Action.MANAGE, person)
    assert owner.may(Action.VIEW, person)


@table("actor", ALL_USERS)
def test_looking_at_one_scope_shows_its_rows_alone_and_widens_nothing(
    scenario: Scenario, actor: str
) -> None:
    access, rows = scenario.access(actor), scenario.rows
    one = {*SEEN_IN_ONE, "limit of person"} & SEEN_IN_ALL
    for name, inside in (("organization", SEEN_IN_ALL), ("project one", one)):
        narrowed = access.within(rows[name])
        for action in set(Action) - {Action.VIEW}:
            assert scenario.allowed(narrowed, action) <= scenario.allowed(access, action)
        assert _seen(scenario, narrowed) <= {*inside, *FOR_ALL, "limit of a removed model"}
        assert _seen(scenario, narrowed) <= _seen(scenario, access)
    elsewhere = access.within(rows["their organization"]).visible()
    theirs = {Dimension.ORGANIZATION: {rows["their organization"].pk}}
    assert elsewhere == (theirs if actor == "superuser" else {})


def _seen(scenario: Scenario, access: Access) -> set[str]:
    stored = {name: row for name, row in scenario.rows.items() if row.pk}
    return {name for name, row in stored.items() if access.rows(type(row)).filter(pk=row.pk)}


def test_an_inactive_or_anonymous_user_sees_no_rows(scenario: Scenario) -> None:
    person = scenario.people["owner"]
    person.is_active = False
    for access in (Access.of(person), Access.of(AnonymousUser())):
        for model in (
            Organization,
            User,
            ApiKey,
            Limit,
            AuditEntry,
            models.ModelWeight,
            models.UsageRecord,
        ):
            assert not access.rows(model).exists()
        assert not any(access.may(Action.VIEW, row) for row in scenario.rows.values() if row.pk)


@table(
    "actor, same_as",
    [
        ("viewer", "project viewer"),
        ("owner", "project owner"),
        ("project admin", "project admin"),
        ("superuser", "project owner"),
        ("stranger", "stranger"),
    ],
)
def test_a_managing_key_manages_its_project(scenario: Scenario, actor: str, same_as: str) -> None:
    with rolled_back():
        access = Access.of_key(scenario.key_of(actor, "manage"))

        seen = FOR_ALL if actor == "stranger" else SEEN_IN_ONE
        assert scenario.allowed(access, Action.VIEW) == seen
        assert scenario.allowed(access, Action.MANAGE) == MANAGED[same_as]


def test_no_user_may_hold_a_managing_key_of_an_owner_with_more_rights(scenario: Scenario) -> None:
    project = scenario.rows["project one"]

    def may_hold(actor: str, owner: str, *scopes: str) -> bool:
        key = ApiKey(owner=scenario.people[owner], project=project, scopes=list(scopes))
        return scenario.access(actor).may_act_as(key)

    assert not may_hold("admin", "owner", "manage")
    assert not may_hold("project owner", "superuser", "inference", "manage")
    assert may_hold("admin", "owner", "inference", "usage")
    assert may_hold("admin", "member", "manage")
    assert may_hold("member", "member", "manage")
    assert may_hold("superuser", "owner", "manage")

    # Such a key also reads captures, if its owner manages the whole organisation.
    assert not may_hold("project admin", "admin", "manage")
    assert not may_hold("project owner", "admin", "manage")
    assert may_hold("project owner", "member", "manage")
    assert may_hold("owner", "admin", "manage")

    # The holder of the secret acts for an inactive owner as soon as the owner is active again.
    for owner in ("owner", "superuser"):
        scenario.people[owner].is_active = False
        assert not may_hold("admin", owner, "manage")
        assert not may_hold("project admin", owner, "manage")


@table("actor, may", [("admin", True), ("project admin", False)])
def test_an_admin_s_key_may_hold_those_of_admins(scenario: Scenario, actor: str, may: bool) -> None:
    project, admin = scenario.rows["project one"], scenario.people["admin"]
    changes.set_role(other_admin := scenario.people["viewer"], project.organization, Role.ADMIN)
    own = scenario.key_of(actor, "manage")
    access = Access.of_key(own)

    for owner in (admin, other_admin):
        key = ApiKey(owner=owner, project=project, scopes=["manage"])
        assert access.may_act_as(key) is may


def test_usage_is_visible_by_role_and_to_its_user(scenario: Scenario) -> None:
    ours, one = scenario.rows["organization"].pk, scenario.rows["project one"].pk
    me = {actor: scenario.people[actor].pk for actor in ALL_USERS}

    assert scenario.access("viewer").visible() == {
        Dimension.ORGANIZATION: frozenset({ours}),
        Dimension.USER: frozenset({me["viewer"]}),
    }
    assert scenario.access("project admin").visible() == {
        Dimension.PROJECT: frozenset({one}),
        Dimension.USER: frozenset({me["project admin"]}),
    }
    assert scenario.access("stranger").visible() == {Dimension.USER: frozenset({me["stranger"]})}
    assert scenario.access("superuser").visible() is None


def test_admins_see_the_log_of_their_scope_and_users_their_own_actions(scenario: Scenario) -> None:
    def seen(actor: str) -> set[int]:
        entries = scenario.access(actor).rows(AuditEntry)
        return set(entries.values_list("organization_id", flat=True))

    ours, theirs = scenario.rows["organization"].pk, scenario.rows["their organization"].pk
    assert seen("viewer") == seen("member") == seen("project owner") == set()
    assert seen("admin") == seen("owner") == {ours}
    assert {ours, theirs, None} <= seen("superuser")

    member = scenario.access("member")
    record("look", scenario.rows["key in one"], by=Actor(member.user_id, "member"))
    assert member.rows(AuditEntry).get().action == "key.look"


def test_rights_take_one_query_and_tables_without_a_rule_are_hidden(scenario: Scenario) -> None:
    with CaptureQueriesContext(connection) as queries:
        scenario.access("owner")
        scenario.access("superuser")
    assert len(queries) == 1

    with pytest.raises(TypeError, match="visibility of Group"):
        scenario.access("owner").rows(Group)
    assert not scenario.access("owner").may(Action.MANAGE, Group(name="x"))


# Owners of the limits that the admins of project one, and of our organisation, set. Only superusers
# set limits of organisations, only admins of an organisation set limits of projects.
LIMITED_IN_ONE = {
    *("key in one", "own key", "service"),
    *("project member", "project admin", "project owner"),
}
LIMITED_IN_ALL = {
    *LIMITED_IN_ONE,
    *("project one", "project two", "key in two", "person"),
    *("viewer", "member", "admin", "owner"),
}
LIMITED = dict.fromkeys(("admin", "owner"), LIMITED_IN_ALL)
LIMITED |= dict.fromkeys(("project admin", "project owner"), LIMITED_IN_ONE)
LIMITED_BY_KEY = dict.fromkeys((*LIMITED, "superuser"), LIMITED_IN_ONE)


@table("actor", ALL_USERS)
@table("as_key", [False, True])
def test_users_set_limits_below_their_role(scenario: Scenario, actor: str, as_key: bool) -> None:
    with rolled_back():
        found, permitted, names = limited_by(scenario, actor, as_key)

    expected = (LIMITED_BY_KEY if as_key else LIMITED).get(actor, NOTHING) - {actor}
    is_chief = actor == "superuser" and not as_key
    assert found == permitted == (names if is_chief else expected)


def limited_by(scenario: Scenario, actor: str, as_key: bool) -> tuple[set[str], set[str], set[str]]:
    """Return the names of rows whose limits a user finds and may set, and all such rows."""
    elsewhere = scenario.rows["their project two"]
    key = scenario.key_of(actor, "manage")
    access = Access.of_key(ApiKey.objects.get(pk=key.pk)) if as_key else scenario.access(actor)
    # This user has a second role in an organisation where the others have no role.
    changes.set_role(scenario.people["project viewer"], elsewhere, Role.VIEWER)
    rows = {**scenario.rows, **scenario.people, "own key": key}
    names = {(type(row), row.pk): name for name, row in rows.items()}

    found = {
        names[model, pk]
        for model in models.OWNERS.values()
        for pk in access.rows_to_limit(model).values_list("pk", flat=True)
    }
    of_all = [(kind, row) for kind, model in models.OWNERS.items() for row in model.objects.all()]
    permitted = {
        names[type(row), row.pk]
        for kind, row in of_all
        if access.may(Action.MANAGE, Limit(scope=kind, scope_id=row.pk))
    }
    return found, permitted, {names[type(row), row.pk] for _, row in of_all}
