"""Leases of background responses, and what happens to those who lose one."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from vinery_accounts.alerts.deliveries import response_ended
from vinery_accounts.models import (
    BackgroundRun,
    Delivery,
    ResponseEvents,
    UsageRecord,
    Webhook,
)
from vinery_accounts.stored import responses, runs
from vinery_accounts.stored.responses import NewResponse
from vinery_accounts.stored.rows import Item, NotStored, Owner
from vinery_accounts.stored.runs import ClaimedRun, RunLost, StoredRequest

pytestmark = [pytest.mark.django_db, pytest.mark.stores]

EVENTS = [b"event: %d\n\n" % number for number in range(5)]
DEAD = "elsewhere/1/1"


def queued(id_: str = "resp_1", project_id: int | None = 1) -> None:
    new = NewResponse(
        owner=Owner(project_id),
        public_id=id_,
        status="queued",
        model="tiny-chat",
        request_id=f"req of {id_}",
        created_at=datetime.now(UTC),
        days=30,
        payload=b"{}",
        inputs=(Item(f"msg_of_{id_}", "message", b'{"a":1}'),),
        outputs=(),
    )
    request = StoredRequest(
        request_id=new.request_id, token="a", created_at=0, tree="v1", body=b"{}", key_id=None
    )
    runs.create(new, request)


def claimed(me: str = "here/1/1", num: int = 1) -> ClaimedRun:
    (run,) = runs.claim(me, num)
    return run


def end(run: ClaimedRun, told: list[Any], status: str = "completed") -> None:
    runs.finish(
        run,
        status=status,
        payload=b'{"end":1}',
        outputs=[Item(f"out_of_{run.public_id}", "message", b'{"b":2}')],
        events=EVENTS,
        settlement=None,
        on_end=lambda *args: told.append(response_ended(*args) or args),
    )


def test_events_are_stored_once_though_a_timeout_hides_that_they_are() -> None:
    queued()
    run, told = claimed(), []

    runs.progress(run, EVENTS[:2], b"two")
    assert runs.progress(run, EVENTS[:3], b"three") == 3  # the answer to the first was lost
    end(run, told)

    found = runs.read_events(1, "resp_1", -1)
    assert b"".join(each for _, each in found.chunks) == b"".join(EVENTS)
    assert [first for first, _ in found.chunks] == [0, 2, 3]
    assert (found.is_over, found.has_gone) == (True, False)
    assert told == [(1, "resp_1", "completed")]
    assert [each.public_id for each in responses.find(1, "resp_1").outputs] == ["out_of_resp_1"]
    with pytest.raises(RunLost):
        end(run, told)


def test_the_next_process_has_the_tokens_and_the_former_can_change_nothing() -> None:
    queued()
    former = claimed(DEAD)
    runs.progress(former, EVENTS[:2], b"tokens")
    BackgroundRun.objects.update(lease_until=datetime.now(UTC) - timedelta(seconds=1))

    run = claimed()

    assert (run.trail, run.num_tries, runs.begin(run)) == (b"tokens", 2, b"".join(EVENTS[:2]))
    for change in (
        lambda: runs.progress(former, EVENTS, b""),
        lambda: runs.begin(former),
        lambda: end(former, []),
    ):
        with pytest.raises(RunLost):
            change()
    end(run, [])
    assert not UsageRecord.objects.exists()
    assert ResponseEvents.objects.count() == 2


def test_a_lease_that_holds_is_not_given_to_others() -> None:
    queued()
    run = claimed(DEAD)

    assert runs.claim("here/1/1", 1) == []
    assert runs.renew(DEAD) == runs.held(DEAD) == {run.pk}


def test_projects_with_fewer_running_responses_come_first() -> None:
    for number in range(3):
        queued(f"resp_a{number}", project_id=1)
    queued("resp_b", project_id=2)
    claimed(DEAD)

    assert claimed(DEAD).public_id == "resp_b"


def test_a_cancelled_response_ends_the_run_and_cannot_be_cancelled_by_others() -> None:
    queued()
    run, told = claimed(), []

    with pytest.raises(NotStored):
        runs.cancel(2, "resp_1", lambda *args: told.append(args))
    assert runs.cancel(1, "resp_1", lambda *args: told.append(args))
    assert runs.cancel(1, "resp_1", lambda *args: told.append(args))  # again: as it is

    assert told == [(1, "resp_1", "cancelled")]
    assert responses.find(1, "resp_1").status == "cancelled"
    with pytest.raises(RunLost):
        end(run, told)


def test_a_run_that_waits_for_a_limit_loses_no_try_and_comes_later() -> None:
    queued()
    runs.put_back(claimed(), 60.0)

    assert runs.claim("here/1/1", 1) == []
    BackgroundRun.objects.update(due_at=datetime.now(UTC))
    assert claimed().num_tries == 1


def test_a_failed_and_a_cancelled_response_are_told_to_webhooks() -> None:
    Webhook.objects.create(name="ends", url="http://127.0.0.1/", gets_responses=True)
    queued("resp_failed", project_id=None)
    end(claimed(), [], "failed")
    queued("resp_cancelled", project_id=None)
    runs.cancel(None, "resp_cancelled", response_ended)

    events: list[Any] = list(Delivery.objects.order_by("pk").values_list("event", flat=True))
    assert [(each["type"], each["data"]["id"]) for each in events] == [
        ("response.failed", "resp_failed"),
        ("response.cancelled", "resp_cancelled"),
    ]
