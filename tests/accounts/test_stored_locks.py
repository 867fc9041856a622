"""Transactions over stored rows wait in one order, so that none of them waits in a circle."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest
from django.db import connection, transaction
from django.utils import timezone
from stored_builders import Owner, message, store_conversation, store_response, store_run

from tests.conftest import until
from tests.tables import table
from vinery_accounts.models import (
    BackgroundRun,
    Conversation,
    ResponseEvents,
    StoredItem,
    StoredResponse,
)
from vinery_accounts.stored import care, conversations, runs
from vinery_accounts.stored.rows import Item

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.stores]

OWNER = Owner(1)
ORDER: Final[tuple[Any, ...]] = (
    BackgroundRun,
    Conversation,
    StoredResponse,
    ResponseEvents,
    StoredItem,
)
REFERENCE = Item("msg_1", "item_reference", b"")


def store_rows() -> None:
    """A conversation with an item, and a response that runs in it and has an event."""
    for each in ORDER:
        each.objects.all().delete()
    store_conversation("conv_1", OWNER, message("msg_1"))
    store_run("resp_1", OWNER, inputs=(REFERENCE,), conversation_id="conv_1")
    conversations.lock(1, "conv_1", "resp_1")
    StoredResponse.objects.update(events_until=timezone.now())


def refer() -> None:
    store_response("resp_2", OWNER, inputs=(REFERENCE,), conversation_id="conv_1")


def finish() -> None:
    run = BackgroundRun.objects.select_related("response").get()
    runs.finish(run, ("completed", b"{}", [message("msg_2")]), [b"event\n\n"], None)


def expire_and_sweep() -> None:
    StoredResponse.objects.update(expires_at=timezone.now(), events_until=None)
    care.sweep(timezone.now())


def in_thread(work: Callable[[], object]) -> None:
    try:
        work()
    finally:
        connection.close()


def num_waiting_for_us() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks "
            "WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
        )
        return int(cursor.fetchone()[0])


@table(
    "held, work",
    [
        (Conversation, refer),
        (Conversation, lambda: conversations.add(OWNER, "conv_1", [REFERENCE])),
        (Conversation, lambda: conversations.delete_item(1, "conv_1", "msg_1")),
        (Conversation, lambda: conversations.delete(1, "conv_1")),
        (Conversation, finish),
        (Conversation, lambda: runs.cancel(1, "resp_1")),
        (BackgroundRun, lambda: runs.cancel(1, "resp_1")),
        (BackgroundRun, expire_and_sweep),
        (StoredResponse, lambda: runs.delete(1, "resp_1")),
        (StoredResponse, lambda: runs.remove_old_events(timezone.now())),
    ],
)
def test_who_waits_for_a_row_has_locked_none_that_comes_later(
    held: Any, work: Callable[[], object]
) -> None:
    if connection.vendor == "sqlite":  # which has one writer at a time
        return

    store_rows()
    with ThreadPoolExecutor(1) as thread:
        with transaction.atomic():
            list(held.objects.select_for_update())
            done = thread.submit(in_thread, work)
            until(num_waiting_for_us)
            for each in ORDER[ORDER.index(held) + 1 :]:
                assert list(each.objects.select_for_update(nowait=True, no_key=True))
        done.result()


def test_a_response_that_is_continued_while_a_sweep_waits_for_it_keeps_its_run() -> None:
    if connection.vendor == "sqlite":  # which has one writer at a time
        return
    store_rows()
    now = timezone.now()
    StoredResponse.objects.update(expires_at=now, events_until=None)
    with ThreadPoolExecutor(1) as thread:
        with transaction.atomic():
            list(StoredResponse.objects.select_for_update())
            done = thread.submit(in_thread, lambda: care.sweep(now))
            until(num_waiting_for_us)
            store_response("resp_2", OWNER, previous_id="resp_1")
        done.result()
    assert BackgroundRun.objects.get().response.public_id == "resp_1"
