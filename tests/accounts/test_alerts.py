"""An alert that a quota is nearly used up is written once in a window for each threshold."""

from __future__ import annotations

from datetime import timedelta

import pytest
from alert_builders import check, person, tokens_a_day, use
from together import four_at_once
from usage_builders import NOON

from vinery_accounts.alerts import quotas
from vinery_accounts.models import Alert, Delivery, Limit, Organization, Project, Role
from vinery_accounts.services import changes


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
