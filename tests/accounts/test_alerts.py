"""Alerts that a quota is nearly used up.

An alert is sent once in a window for each threshold, to the receivers of its limit. Its delivery
is tried again until it arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core import mail
from django.db.models import Model
from together import four_at_once
from usage_builders import NOON, admission, settlement
from webhook_receiver import Receiver, receiving

from accounts import tasks
from accounts.alerts import deliveries, quotas, thresholds, webhooks
from accounts.base.networks import read_networks
from accounts.keys.lifecycle import create_key
from accounts.models import (
    Alert,
    Delivery,
    DeliveryState,
    Limit,
    Organization,
    Project,
    Role,
    User,
    Webhook,
)
from accounts.services import changes
from accounts.services.access import Access
from accounts.usage.store import store_settlements

USUAL = (50, 80, 100)


@pytest.fixture(autouse=True)
def allowed(settings: Any) -> None:
    settings.VINERY_WEBHOOK_NETWORKS = read_networks(["127.0.0.0/8"])


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


def tokens_a_day(project: Project, amount: int = 1000, **more: Any) -> Limit:
    limit = Limit(scope="project", scope_id=project.pk, metric="tokens", window="day")
    for name, value in {"amount": amount, **more}.items():
        setattr(limit, name, value)
    return changes.add(limit)


def use(num_tokens: int, project: Project | None = None, at: datetime = NOON) -> None:
    use.num_requests = getattr(use, "num_requests", 0) + 1  # type: ignore[attr-defined]
    request_id = f"r{use.num_requests}"  # type: ignore[attr-defined]
    scope = {} if project is None else {"project_id": project.pk}
    identity = admission(request_id, started_at=at, **scope)
    tokens = {"num_prompt_tokens": num_tokens, "num_cached_tokens": 0, "num_output_tokens": 0}
    store_settlements(
        [settlement(request_id, admission=identity, num_reasoning_tokens=0, **tokens)]
    )


def check(at: datetime = NOON, usual: tuple[int, ...] = USUAL) -> list[int]:
    return [alert.percent for alert in thresholds.check_quotas(at, usual, has_email=True)]


def person(name: str, **more: Any) -> User:
    return User.objects.create_user(name, email=f"{name}@example.com", **more)


# -- Thresholds


def test_each_threshold_sends_one_alert_in_a_window(search: Project) -> None:
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


def test_the_next_window_sends_new_alerts(search: Project) -> None:
    tokens_a_day(search)
    use(600, search)
    assert check() == [50]

    tomorrow = NOON + timedelta(days=1)
    assert check(tomorrow) == []
    use(600, search, tomorrow)
    assert check(tomorrow) == [50]


def test_a_window_follows_the_limit_s_time_zone(search: Project) -> None:
    tokens_a_day(search, time_zone="Pacific/Auckland")  # a day began there an hour ago
    use(600, search, NOON - timedelta(hours=2))

    assert check() == []
    assert check(NOON - timedelta(hours=1, minutes=1)) == [50]


def test_a_week_begins_on_the_limit_s_first_day(search: Project) -> None:
    tokens_a_day(search, window="week", week_start=NOON.strftime("%A").lower())
    use(600, search, NOON - timedelta(days=1))

    assert check() == []
    assert check(NOON - timedelta(hours=23)) == [50]


def test_several_thresholds_at_once_are_stored_and_sent_in_one_message(
    search: Project, acme: Organization
) -> None:
    changes.set_role(person("olga"), acme, Role.OWNER)
    tokens_a_day(search)
    use(900, search)

    assert check() == [80, 50]

    assert [each.alert.percent for each in Delivery.objects.all()] == [80]


def test_a_limit_has_its_own_thresholds_or_none(search: Project) -> None:
    limit = tokens_a_day(search, alert_at=[10, 90])
    use(500, search)
    assert check() == [10]

    changes.change(limit, alert_at=[])
    use(5000, search)
    assert check() == []

    changes.change(limit, alert_at=None)
    assert check() == [100, 80, 50]


def test_a_limit_that_is_not_a_quota_has_no_thresholds(search: Project) -> None:
    changes.add(
        Limit(scope="project", scope_id=search.pk, metric="tokens", window="minute", amount=1)
    )
    use(500, search)
    assert check() == []


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


# -- Receivers


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


# -- Deliveries


@pytest.fixture
def due(
    search: Project, acme: Organization, receiver: Receiver
) -> Callable[[], tuple[Delivery, str]]:
    """Return a function that creates an alert for the receiver's webhook."""

    def make() -> tuple[Delivery, str]:
        webhook, secret = webhooks.make("ours", receiver.url, acme)
        changes.add(webhook)
        tokens_a_day(search)
        use(500, search)
        check()
        return Delivery.objects.get(), secret

    return make


def test_a_message_is_sent_once(due: Any, receiver: Receiver) -> None:
    delivery, _ = due()

    assert deliveries.due_ids(NOON) == [delivery.pk]
    assert deliveries.deliver(delivery.pk, NOON) is DeliveryState.SENT
    assert deliveries.deliver(delivery.pk, NOON + timedelta(days=1)) is None

    assert deliveries.due_ids(NOON + timedelta(days=1)) == []
    assert len(receiver.requests) == 1


def test_a_failed_delivery_is_tried_again_later_and_given_up_in_the_end(
    due: Any, receiver: Receiver
) -> None:
    delivery, _ = due()
    receiver.statuses = [500]
    now, waits = NOON, []

    while deliveries.deliver(delivery.pk, now) is DeliveryState.PENDING:
        delivery.refresh_from_db()
        assert delivery.error == "The receiver answered 500."
        waits.append(delivery.due_at - now)
        assert deliveries.deliver(delivery.pk, delivery.due_at - timedelta(seconds=1)) is None
        now = delivery.due_at

    assert tuple(waits) == deliveries.BACKOFF == tuple(sorted(waits))
    delivery.refresh_from_db()
    assert (delivery.state, delivery.num_tries) == (DeliveryState.FAILED, len(waits) + 1)
    assert len(receiver.requests) == len(waits) + 1
    assert {headers["webhook-id"] for _, headers, _ in receiver.requests} == {
        f"evt_alert_{delivery.alert_id}"
    }


def test_a_successful_retry_ends_the_delivery(due: Any, receiver: Receiver) -> None:
    delivery, _ = due()
    receiver.statuses = [503, 200]

    assert deliveries.deliver(delivery.pk, NOON) is DeliveryState.PENDING
    later = NOON + deliveries.BACKOFF[0]
    assert deliveries.deliver(delivery.pk, later) is DeliveryState.SENT

    delivery.refresh_from_db()
    assert (delivery.error, delivery.sent_at) == ("", later)


def test_a_delivery_of_a_dead_worker_is_due_again(
    due: Any, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery, _ = due()

    def die(_: Delivery) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(deliveries, "_send", die)
        with pytest.raises(SystemExit):
            deliveries.deliver(delivery.pk, NOON)

    assert deliveries.due_ids(NOON + deliveries.LEASE / 2) == []
    assert deliveries.due_ids(NOON + deliveries.LEASE) == [delivery.pk]
    assert deliveries.deliver(delivery.pk, NOON + deliveries.LEASE) is DeliveryState.SENT


def test_a_delivery_that_kills_its_workers_is_given_up(
    due: Any, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery, _ = due()
    now = NOON

    def die(_: Delivery) -> None:
        raise SystemExit

    monkeypatch.setattr(deliveries, "_send", die)
    for _ in range(len(deliveries.BACKOFF) + 1):
        with pytest.raises(SystemExit):
            deliveries.deliver(delivery.pk, now)
        now += deliveries.LEASE

    assert deliveries.deliver(delivery.pk, now) is DeliveryState.FAILED
    assert deliveries.due_ids(now + timedelta(days=9)) == []


def test_an_e_mail_contains_the_usage_and_the_forecast(search: Project, acme: Organization) -> None:
    changes.set_role(person("olga"), acme, Role.OWNER)
    tokens_a_day(search)
    use(800, search, NOON - timedelta(hours=1))
    check()

    assert deliveries.deliver(Delivery.objects.get().pk, NOON) is DeliveryState.SENT

    [message] = mail.outbox
    assert message.to == ["olga@example.com"]
    assert message.subject == "80 % of project Acme / search's tokens are used"
    assert message.body == (
        "800 of 1,000 tokens are used by project Acme / search, counted since 2026-03-01 00:00 "
        "UTC.\n\nAt this pace the quota is used up at 2026-03-01 15:00 UTC.\n\n"
        "It resets at 2026-03-02 00:00 UTC.\n"
    )


def test_a_line_break_in_a_name_adds_no_header(search: Project, acme: Organization) -> None:
    changes.set_role(person("olga"), acme, Role.OWNER)
    Project.objects.filter(pk=search.pk).update(name="search\nBcc: all@example.com")
    tokens_a_day(search)
    use(500, search)
    check()

    assert deliveries.deliver(Delivery.objects.get().pk, NOON) is DeliveryState.SENT
    assert "\n" not in mail.outbox[0].subject


def test_without_a_mail_server_no_mail_is_sent(search: Project, acme: Organization) -> None:
    changes.set_role(person("olga"), acme, Role.OWNER)
    tokens_a_day(search)
    use(500, search)

    thresholds.check_quotas(NOON, USUAL, has_email=False)

    assert Alert.objects.count() == 1
    assert not Delivery.objects.exists()


def test_tasks_check_quotas_queue_deliveries_and_send_them(
    search: Project, acme: Organization, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes.add(webhooks.make("ours", receiver.url, acme)[0])
    tokens_a_day(search)
    use(500, search, datetime.now(UTC))
    # Messages to workers are direct calls here.
    monkeypatch.setattr(tasks.sweep_deliveries, "delay", tasks.sweep_deliveries)
    monkeypatch.setattr(tasks.deliver, "delay", tasks.deliver)

    tasks.check_quotas()
    tasks.sweep_deliveries()

    assert len(receiver.requests) == 1
    assert Delivery.objects.get().state == DeliveryState.SENT
