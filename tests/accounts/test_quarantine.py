"""Requests that ended two engines are kept for all web processes, until they expire or are
released."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import DataError, OperationalError
from django.utils import timezone
from row_builders import stored_quarantined

from tests.accounts.key_tables import MakeKey
from vinery_accounts.access import audit, changes
from vinery_accounts.captures.quarantine import (
    QuarantineQueue,
    digests_in_force,
    release,
    store_fatal,
)
from vinery_accounts.models import AuditEntry, Organization, Project, QuarantinedRequest, User
from vinery_accounts.tasks import delete_old_quarantine

pytestmark = pytest.mark.stores
DAY_S = 24 * 3600
DIGEST = "0123456789abcdef" * 2
OTHER = "f" * 32


def fatal(digest: str = DIGEST, **more: Any) -> QuarantinedRequest:
    usual = {"model": "tiny-chat", "request_id": "req_1", "key_id": None}
    values: dict[str, Any] = {"organization_id": None, "created_at": datetime.now(UTC), **usual}
    return QuarantinedRequest(digest=digest, **{**values, **more})


def test_a_request_is_stored_with_the_names_that_are_known_and_outlives_its_key(
    acme: Organization, new_key: MakeKey, search: Project, alice: User
) -> None:
    store_fatal(fatal(model="m" * 300), DAY_S)
    store_fatal(fatal(OTHER, key_id=999_999, organization_id=acme.pk), DAY_S)
    row, gone = QuarantinedRequest.objects.order_by("digest")
    assert (row.key_id, row.user_id, row.project_id, row.organization_id) == (None,) * 4
    assert (row.username, row.key_name) == ("", "")
    assert row.model == "m" * 255
    assert (gone.key_id, gone.organization_id, gone.key_name) == (999_999, acme.pk, "")

    key = new_key(project=search).key
    store_fatal(fatal("d" * 32, key_id=key.pk, organization_id=search.organization_id), DAY_S)
    key.delete()
    changes.remove(search)
    changes.remove(search.organization)
    row = QuarantinedRequest.objects.get(digest="d" * 32)
    assert (row.model, row.request_id) == ("tiny-chat", "req_1")
    assert (row.username, row.key_name, row.project_name) == ("alice", "laptop", "search")
    assert (row.organization_name, row.user_id) == ("Acme", alice.pk)
    assert timedelta(hours=23) < row.expires_at - row.created_at <= timedelta(hours=25)


def test_a_request_is_stored_once_and_has_new_columns_after_its_time(db: None) -> None:
    store_fatal(fatal(), 60)
    first = QuarantinedRequest.objects.get()
    store_fatal(fatal(request_id="req_2"), DAY_S)
    row = QuarantinedRequest.objects.get()
    assert (row.pk, row.request_id, row.created_at) == (first.pk, "req_1", first.created_at)
    assert row.expires_at > first.expires_at + timedelta(hours=23)

    stored_quarantined(OTHER, expires_at=timezone.now())
    assert digests_in_force() == {DIGEST}
    store_fatal(fatal(OTHER, request_id="req_2"), DAY_S)
    assert QuarantinedRequest.stored.get(digest=OTHER).request_id == "req_2"
    assert digests_in_force() == {DIGEST, OTHER}


def test_a_release_is_audited_once_and_expired_requests_go(acme: Organization, db: None) -> None:
    row = stored_quarantined(DIGEST, organization_id=acme.pk)
    same = QuarantinedRequest.objects.get()
    assert release(row).pk == same.pk
    release(same)
    assert digests_in_force() == frozenset()
    entry = AuditEntry.objects.get(action="quarantine.release")
    assert (entry.target, entry.target_id) == (DIGEST, str(row.pk))
    assert (entry.organization_id, (entry.before or {})["model"]) == (acme.pk, "tiny-chat")
    assert audit.verify().broken is None

    stored_quarantined(DIGEST)
    stored_quarantined(OTHER, expires_at=timezone.now() - timedelta(seconds=1))
    assert [row.digest for row in QuarantinedRequest.objects.all()] == [DIGEST]
    delete_old_quarantine()
    assert [row.digest for row in QuarantinedRequest.stored.all()] == [DIGEST]


class Database:
    """Stores requests in memory. Raises each of `errors` once."""

    def __init__(self) -> None:
        self.stored: list[str] = []
        self.errors: list[Exception] = []

    def store(self, found: QuarantinedRequest, keep_s: int) -> None:
        if self.errors:
            raise self.errors.pop()
        self.stored.append(found.digest)

    def read(self) -> frozenset[str]:
        return frozenset({*self.stored, OTHER})

    def queue(self, keep_s: int = DAY_S, **more: Any) -> QuarantineQueue:
        return QuarantineQueue(keep_s, store=self.store, read=self.read, **more)


def test_waiting_requests_are_few_and_block_no_other(caplog: pytest.LogCaptureFixture) -> None:
    database = Database()
    queue = database.queue()
    queue.put(fatal())
    database.errors = [OperationalError("connection refused")]
    with pytest.raises(OperationalError):
        queue.sync()
    assert queue.waiting == {DIGEST}
    assert queue.sync() == {DIGEST, OTHER}
    assert (queue.waiting, queue.num_in_force) == (frozenset(), 2)

    database = Database()
    queue = database.queue()
    queue.put(fatal("a" * 32))
    queue.put(fatal())
    database.errors = [DataError("value too long")]
    assert queue.sync() == {DIGEST, OTHER}
    assert queue.waiting == frozenset()
    assert f"quarantine not stored digest={'a' * 32}" in caplog.text

    queue = Database().queue(max_waiting=1)
    queue.put(fatal("a" * 32))
    queue.put(fatal())
    assert queue.waiting == {"a" * 32}
    assert f"digest={DIGEST}: too many wait" in caplog.text


def test_reading_needs_one_query_and_none_if_off(db: None, django_assert_num_queries: Any) -> None:
    stored_quarantined(OTHER)

    with django_assert_num_queries(1):
        assert QuarantineQueue(DAY_S).sync() == {OTHER}
    with django_assert_num_queries(0):
        assert QuarantineQueue(0).sync() == frozenset()
