"""Who receives the alert of a limit: admins, the limit's user, superusers, webhooks."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from alert_builders import check, person, tokens_a_day, use
from django.db.models import Model
from usage_builders import NOON, admission, settlement

from vinery_accounts.alerts import webhooks
from vinery_accounts.keys.lifecycle import create_key
from vinery_accounts.models import (
    Alert,
    Delivery,
    Limit,
    Organization,
    Project,
    Role,
    User,
    Webhook,
)
from vinery_accounts.services import changes
from vinery_accounts.services.access import Access
from vinery_accounts.usage.store import store_settlements


def test_admins_get_alerts_of_their_organisation_and_superusers_of_the_platform(
    search: Project, acme: Organization
) -> None:
    other = changes.add(Organization(name="Other"))
    for name, scope, role in (
        ("olga", acme, Role.OWNER),
        ("adam", acme, Role.ADMIN),
        ("mia", acme, Role.MEMBER),
        ("paul", search, Role.ADMIN),
        ("eve", other, Role.OWNER),
    ):
        changes.set_role(person(name), scope, role)
    changes.set_role(User.objects.create_user("nomail"), acme, Role.OWNER)
    changes.set_role(person("gone", is_active=False), acme, Role.OWNER)
    person("root", is_superuser=True)
    tokens_a_day(search)
    changes.add(Limit(scope="platform", metric="tokens", window="month", amount=1000))
    use(500, search)

    check()

    receivers = {
        scope: {each.user.username for each in Delivery.objects.filter(alert__scope=scope)}
        for scope in (f"project:{search.pk}", "platform")
    }
    assert receivers == {f"project:{search.pk}": {"olga", "adam", "paul"}, "platform": {"root"}}


def quota(scope: str, owner: Model) -> Limit:
    """Create a quota of one token, which is used up."""
    return changes.add(
        Limit(scope=scope, scope_id=owner.pk, metric="tokens", window="day", amount=1)
    )


def readers_of(limit: Limit) -> list[User]:
    """Return the receivers of a limit's alerts, sorted by name, once for each message."""
    written = Delivery.objects.filter(alert__limit_id=limit.pk, webhook=None)
    return [each.user for each in written.order_by("user__username").select_related("user")]


def names(people: Iterable[User]) -> list[str]:
    return [each.username for each in people]


@pytest.fixture
def people(search: Project, acme: Organization) -> dict[str, User]:
    """Create admins of the organisation, of the project and of another project, and a member."""
    elsewhere = changes.add(Project(organization=acme, name="elsewhere"))
    scopes = {
        "adam": (acme, Role.ADMIN),
        "paul": (search, Role.ADMIN),
        "peter": (elsewhere, Role.ADMIN),
        "mia": (search, Role.MEMBER),
        "vera": (acme, Role.VIEWER),
    }
    found = {name: person(name) for name in scopes}
    for name, (scope, role) in scopes.items():
        changes.set_role(found[name], scope, role)
    person("root", is_superuser=True)
    return found


def test_the_user_of_a_limit_gets_the_alert_too(search: Project, people: dict[str, User]) -> None:
    mia = people["mia"]
    key = create_key(owner=mia, project=search, name="laptop").key
    limits = [quota("key", key), quota("user", mia), quota("project", search)]
    identity = {"user_id": mia.pk, "key_id": key.pk, "project_id": search.pk}
    store_settlements([settlement("r", admission=admission("r", started_at=NOON, **identity))])

    check()

    assert [names(readers_of(limit)) for limit in limits] == [
        ["adam", "mia", "paul"],
        ["adam", "mia"],
        ["adam", "paul"],
    ]


def test_alerts_of_a_user_in_several_organisations_go_to_the_user_and_superusers(
    people: dict[str, User],
) -> None:
    mia = people["mia"]
    changes.set_role(mia, changes.add(Organization(name="Other")), Role.MEMBER)
    limit = quota("user", mia)
    store_settlements([settlement("r", admission=admission("r", started_at=NOON, user_id=mia.pk))])

    check()

    # The user belongs to no single organisation, so only superusers are informed.
    assert names(readers_of(limit)) == ["mia", "root"]


def test_a_user_with_several_roles_gets_one_message(
    search: Project, acme: Organization, people: dict[str, User]
) -> None:
    paul = people["paul"]
    changes.set_role(paul, acme, Role.OWNER)
    key = create_key(owner=paul, project=search, name="laptop").key
    limit = quota("key", key)
    store_settlements([settlement("r", admission=admission("r", started_at=NOON, key_id=key.pk))])

    check()

    assert names(readers_of(limit)) == ["adam", "paul"]


@pytest.mark.parametrize("holder", ["service", "no address", "inactive"])
def test_users_who_cannot_get_mail_are_no_receivers(
    search: Project, people: dict[str, User], holder: str
) -> None:
    robot = User.objects.create_user(
        "robot",
        email="" if holder == "no address" else "robot@example.com",
        is_service=holder == "service",
    )
    changes.set_role(robot, search, Role.MEMBER)
    key = create_key(owner=robot, project=search, name="nightly").key
    limits = [quota("key", key), quota("user", robot)]
    if holder == "inactive":
        changes.set_active(robot, is_active=False)
    identity = {"user_id": robot.pk, "key_id": key.pk}
    store_settlements([settlement("r", admission=admission("r", started_at=NOON, **identity))])

    check()

    assert [names(readers_of(limit)) for limit in limits] == [["adam", "paul"], ["adam"]]


def test_receivers_see_the_alert_and_no_other_user_does(
    search: Project, people: dict[str, User]
) -> None:
    mia = people["mia"]
    changes.set_role(mia, changes.add(Organization(name="Other")), Role.MEMBER)
    own = changes.add(Project(organization_id=search.organization_id, name="own"))
    key = create_key(owner=mia, project=own, name="laptop").key
    limits = [quota("key", key), quota("user", mia), quota("project", search)]
    identity = {"user_id": mia.pk, "key_id": key.pk, "project_id": search.pk}
    store_settlements([settlement("r", admission=admission("r", started_at=NOON, **identity))])

    check()

    for limit in limits:
        assert readers_of(limit)
        for reader in readers_of(limit):
            assert Access.of(reader).rows(Alert).filter(limit_id=limit.pk).exists()
    peters = Access.of(people["peter"]).rows(Alert)
    assert not peters.exists()


def test_a_webhook_gets_only_alerts_of_its_organisation(
    search: Project, acme: Organization
) -> None:
    other = changes.add(Organization(name="Other"))
    for name, scope in (("ours", acme), ("theirs", other), ("the platform's", None)):
        changes.add(webhooks.make(name, "https://hooks.example.com/", scope)[0])
    changes.add(webhooks.make("silent", "https://hooks.example.com/", acme)[0])
    Webhook.objects.filter(name="silent").update(is_active=False)
    tokens_a_day(search)
    use(500, search)

    check()

    assert [each.webhook.name for each in Delivery.objects.all()] == ["ours"]
