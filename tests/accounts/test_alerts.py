"""An alert that a quota is nearly used up is written once in a window for each threshold, for
admins, the limit's user, superusers and webhooks."""

from collections.abc import Iterable
from datetime import timedelta

import pytest
from alert_builders import check, person, tokens_a_day, use
from django.db.models import Model
from hypothesis import given
from hypothesis import strategies as st
from row_builders import stored_limit
from together import four_at_once
from usage_builders import NOON, store

from tests.tables import table
from vinery_accounts.access import changes
from vinery_accounts.access.access import Access
from vinery_accounts.alerts import quotas, webhooks
from vinery_accounts.alerts.quotas import BEFORE_S, DAY_S, runs_out_at
from vinery_accounts.keys.lifecycle import create_key
from vinery_accounts.models import Alert, Delivery, Limit, Organization, Project, Role, User


def test_each_threshold_sends_one_alert_in_each_window(search: Project) -> None:
    tokens_a_day(search)
    use(499, search)
    assert check() == []
    use(1, search)
    assert check() == [50]
    assert check() == []
    use(300, search)
    assert check() == [80]
    use(200, search)
    assert check() == [100]
    assert check(NOON + timedelta(hours=11)) == []

    tomorrow = NOON + timedelta(days=1)
    assert check(tomorrow) == []
    use(600, search, tomorrow)
    assert check(tomorrow) == [50]


def test_several_thresholds_are_sent_in_one_message(search: Project, acme: Organization) -> None:
    changes.set_role(person("olga"), acme, Role.OWNER)
    tokens_a_day(search)
    use(900, search)
    assert check() == [80, 50]
    assert [each.alert.percent for each in Delivery.objects.all()] == [80]

    other = changes.add(Organization(name="Other"))
    for name, scope in (("ours", acme), ("theirs", other), ("the platform's", None)):
        changes.add(webhooks.make(name, "https://hooks.example.com/", scope)[0])
    silent = changes.add(webhooks.make("silent", "https://hooks.example.com/", acme)[0])
    changes.change(silent, is_active=False)
    use(100, search)
    check()
    assert [each.webhook.name for each in Delivery.objects.exclude(webhook=None)] == ["ours"]


def test_a_limit_has_its_own_thresholds_or_none_and_only_a_quota_has_any(search: Project) -> None:
    limit = tokens_a_day(search, alert_at=[10, 90])
    use(500, search)
    assert check() == [10]
    changes.change(limit, alert_at=[])
    use(5000, search)
    assert check() == []
    changes.change(limit, alert_at=None)
    assert check() == [100, 80, 50]

    stored_limit("project", search.pk, window="minute")
    stored_limit("end_user", search.pk, metric="tokens", window="day", amount=1)
    use(500, search)
    assert check() == []


@pytest.mark.stores
@pytest.mark.django_db(transaction=True)
def test_many_processes_write_each_alert_once(search: Project, acme: Organization) -> None:
    changes.set_role(person("olga"), acme, Role.OWNER)
    tokens_a_day(search)
    use(1000, search)
    found = four_at_once(check)

    assert sorted(found) == [50, 80, 100]
    assert Alert.objects.count() == 3
    assert Delivery.objects.count() == 1


def test_an_alert_contains_the_time_at_which_the_quota_runs_out(search: Project) -> None:
    limit = tokens_a_day(search)
    use(800, search, NOON - timedelta(hours=1))

    check()

    alert = Alert.objects.get(percent=80)
    assert (alert.whose, alert.num_used, alert.amount) == ("Acme / search", 800, 1000)
    assert alert.runs_out_at == NOON + timedelta(hours=3)
    assert alert.resets_at == NOON + timedelta(hours=12)
    [quota] = quotas.read_quotas([limit], NOON)
    assert (quota.num_left, quota.percent) == (200, 80)
    assert quota.runs_out_at == alert.runs_out_at


# -- The time at which a quota is used up

HOUR_S = 3600.0


def of_day(num_used: int, at_s: float, amount: int = 1000) -> float | None:
    return runs_out_at(amount, num_used, num_used, at_s, at_s, DAY_S)


@table(
    "num_used, at_h, out_after_h",
    [
        # Some quotas last until their reset, and some are used up now.
        *((500, 6, 12), (800, 12, 15), (200, 6, None), (0, 6, None), (1000, 6, 6), (1200, 6, 6)),
        # Too little of the amount, or too short a time, is no ground for a forecast.
        *((99, 1, None), (100, 1, 10), (300, 0.24, None), (300, 0.25, 0.25 + 700 / (300 / 0.25))),
    ],
)
def test_a_quota_runs_out_at_the_pace_of_its_window(
    num_used: int, at_h: float, out_after_h: float | None
) -> None:
    expected = None if out_after_h is None else pytest.approx(out_after_h * HOUR_S)
    assert of_day(num_used, at_h * HOUR_S) == expected


def test_a_budget_without_a_reset_follows_the_last_days() -> None:
    assert runs_out_at(1000, 300, 70, BEFORE_S, 0) == pytest.approx(70 * DAY_S)
    assert runs_out_at(1000, 300, 0, BEFORE_S, 0) is None


@given(
    amount=st.integers(1, 10**11),
    num_used=st.integers(0, 10**11),
    at_s=st.floats(0, DAY_S, exclude_max=True),
)
def test_the_forecast_is_before_the_reset_and_sooner_with_more_usage(
    amount: int, num_used: int, at_s: float
) -> None:
    found = of_day(num_used, at_s, amount)
    more = of_day(num_used + 1, at_s, amount)

    assert found is None or at_s <= found < DAY_S
    if found is not None:
        assert more is not None and more <= found + 1e-6


# -- Who receives the alert of a limit


def test_admins_and_superusers_get_alerts_of_their_own(search: Project, acme: Organization) -> None:
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
    stored_limit(window="month", amount=1000)
    use(500, search)

    check()

    receivers = {
        scope: {each.user.username for each in Delivery.objects.filter(alert__scope=scope)}
        for scope in (f"project:{search.pk}", "platform")
    }
    assert receivers == {f"project:{search.pk}": {"olga", "adam", "paul"}, "platform": {"root"}}


def quota(scope: str, owner: Model) -> Limit:
    """Create a quota of one token, which is used up."""
    return stored_limit(scope, owner.pk)


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


def test_the_user_of_a_limit_gets_the_alert_too_in_one_message(
    search: Project, people: dict[str, User], acme: Organization
) -> None:
    mia = people["mia"]
    key = create_key(owner=mia, project=search, name="laptop").key
    limits = [quota("key", key), quota("user", mia), quota("project", search)]
    store("r", user_id=mia.pk, key_id=key.pk, project_id=search.pk)
    check()
    found = [names(readers_of(limit)) for limit in limits]
    assert found == [["adam", "mia", "paul"], ["adam", "mia"], ["adam", "paul"]]

    paul = people["paul"]
    changes.set_role(paul, acme, Role.OWNER)
    key = create_key(owner=paul, project=search, name="laptop").key
    limit = quota("key", key)
    store("paul", key_id=key.pk)
    check()
    assert names(readers_of(limit)) == ["adam", "paul"]

    robot = User.objects.create_user("robot", email="robot@example.com", is_service=True)
    changes.set_role(robot, search, Role.MEMBER)
    key = create_key(owner=robot, project=search, name="nightly").key
    limits = [quota("key", key), quota("user", robot)]
    store("robot", user_id=robot.pk, key_id=key.pk)
    check()
    assert [names(readers_of(limit)) for limit in limits] == [["adam", "paul"]] * 2


def test_only_receivers_see_the_alert(search: Project, people: dict[str, User]) -> None:
    mia = people["mia"]
    changes.set_role(mia, changes.add(Organization(name="Other")), Role.MEMBER)
    own = changes.add(Project(organization_id=search.organization_id, name="own"))
    key = create_key(owner=mia, project=own, name="laptop").key
    limits = [quota("key", key), quota("user", mia), quota("project", search)]
    store("r", user_id=mia.pk, key_id=key.pk, project_id=search.pk)
    check()
    # The user belongs to no single organisation, so only superusers are informed.
    assert names(readers_of(limits[1])) == ["mia", "root"]
    for limit in limits:
        assert readers_of(limit)
        for reader in readers_of(limit):
            assert Access.of(reader).rows(Alert).filter(limit_id=limit.pk).exists()
    assert not Access.of(people["peter"]).rows(Alert).exists()
