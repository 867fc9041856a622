"""Leases of background responses, and what happens to those who lose one."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from stored_builders import Owner, queue, set_clock

from vinery_accounts.models import BackgroundRun, Delivery, ResponseEvents, UsageRecord, Webhook
from vinery_accounts.stored import responses, runs
from vinery_accounts.stored.rows import Item, NotStored
from vinery_accounts.stored.runs import RunLost

pytestmark = [pytest.mark.django_db, pytest.mark.stores]

EVENTS = [b"event: %d\n\n" % number for number in range(5)]
DEAD = "elsewhere/1/1"


def queued(id_: str = "resp_1", project_id: int | None = 1) -> None:
    queue(id_, Owner(project_id))


def claimed(me: str = "here/1/1", num: int = 1) -> BackgroundRun:
    (run,) = runs.claim(me, num)
    return run


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The ends that webhooks are told."""
    told: list[Any] = []
    monkeypatch.setattr(runs, "response_ended", lambda *args: told.append(args))
    return told


def end(run: BackgroundRun, status: str = "completed") -> None:
    outputs = [Item(f"out_of_{run.response.public_id}", "message", b'{"b":2}')]
    runs.finish(run, (status, b'{"end":1}', outputs), EVENTS, None)


def test_events_are_stored_once_though_a_timeout_hides_that_they_are(told: list[Any]) -> None:
    queued()
    run = claimed()

    runs.progress(run, EVENTS[:2], b"two")
    assert runs.progress(run, EVENTS[:3], b"three") == 3  # the answer to the first was lost
    end(run)

    for after in range(-1, len(EVENTS)):
        assert runs.read_events(1, "resp_1", after) == (EVENTS[after + 1 :], True, False)
    assert list(ResponseEvents.objects.values_list("first", flat=True)) == [0, 2, 3]
    assert told == [(1, "resp_1", "completed")]
    assert [each.public_id for each in responses.find(1, "resp_1").outputs] == ["out_of_resp_1"]
    with pytest.raises(RunLost):
        end(run)


def test_events_have_gone_an_hour_after_the_end_and_not_before(told: list[Any]) -> None:
    for id_ in ("resp_1", "resp_2"):
        queued(id_)
    end(claimed())
    runs.cancel(1, "resp_2")  # before it had an event
    now, hour = datetime.now(UTC), timedelta(hours=1, minutes=1)

    for moment, has_gone in ((now, False), (now + hour, True)):
        runs.remove_old_events(moment)
        found = [runs.read_events(1, id_, -1) for id_ in ("resp_1", "resp_2")]
        assert [each.has_gone for each in found] == [has_gone] * 2
    assert not ResponseEvents.objects.exists()


def test_the_next_process_has_the_tokens_and_the_former_can_change_nothing() -> None:
    queued()
    former = claimed(DEAD)
    runs.progress(former, EVENTS[:2], b"tokens")
    BackgroundRun.objects.update(lease_until=datetime.now(UTC) - timedelta(seconds=1))

    run = claimed()

    assert (run.trail, run.num_tries, runs.begin(run)) == (b"tokens", 2, EVENTS[:2])
    for change in (
        lambda: runs.progress(former, EVENTS, b""),
        lambda: runs.begin(former),
        lambda: end(former),
    ):
        with pytest.raises(RunLost):
            change()
    end(run)
    assert not UsageRecord.objects.exists()
    assert ResponseEvents.objects.count() == 2


def test_a_lease_that_holds_is_not_given_to_others() -> None:
    queued()
    run = claimed(DEAD)

    assert runs.claim("here/1/1", 1) == []
    assert runs.renew(DEAD) == {run.pk}


@pytest.mark.parametrize("shift_s", [-600, 600])
def test_a_lease_holds_also_between_hosts_with_different_clocks(
    monkeypatch: pytest.MonkeyPatch, shift_s: int
) -> None:
    queued()
    claimed(DEAD)
    with monkeypatch.context() as wrong:
        set_clock(wrong, runs, shift_s)
        assert runs.claim("here/1/1", 1) == []
        runs.renew(DEAD)
    assert runs.claim("here/1/1", 1) == []


def test_projects_with_fewer_running_responses_come_first() -> None:
    for number in range(3):
        queued(f"resp_a{number}", project_id=1)
    queued("resp_b", project_id=2)
    claimed(DEAD)

    assert claimed(DEAD).response.public_id == "resp_b"


def test_a_cancelled_response_ends_the_run_and_cannot_be_cancelled_by_others(
    told: list[Any],
) -> None:
    queued()
    run = claimed()

    with pytest.raises(NotStored):
        runs.cancel(2, "resp_1")
    assert runs.cancel(1, "resp_1")
    assert runs.cancel(1, "resp_1")  # again: as it is

    assert told == [(1, "resp_1", "cancelled")]
    assert responses.find(1, "resp_1").status == "cancelled"
    with pytest.raises(RunLost):
        end(run)


def test_a_run_that_waits_for_a_limit_loses_no_try_and_comes_later() -> None:
    queued()
    runs.put_back(claimed(), 60.0)

    assert runs.claim("here/1/1", 1) == []
    BackgroundRun.objects.update(due_at=datetime.now(UTC))
    assert claimed().num_tries == 1


def test_a_failed_and_a_cancelled_response_are_told_to_webhooks() -> None:
    Webhook.objects.create(name="ends", url="http://127.0.0.1/", gets_responses=True)
    queued("resp_failed", project_id=None)
    end(claimed(), "failed")
    queued("resp_cancelled", project_id=None)
    runs.cancel(None, "resp_cancelled")

    events: list[Any] = list(Delivery.objects.order_by("pk").values_list("event", flat=True))
    assert [(each["type"], each["data"]["id"]) for each in events] == [
        ("response.failed", "resp_failed"),
        ("response.cancelled", "resp_cancelled"),
    ]
