"""Captures are encrypted, readable only by owners and admins of the organisation, and expire."""

import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import OperationalError, connection
from row_builders import captured

from tests.tables import table as rows
from vinery_accounts.access import audit, changes
from vinery_accounts.access.access import Access
from vinery_accounts.captures import store
from vinery_accounts.captures.store import (
    MAX_TEXT_BYTES,
    CapturedRequest,
    CaptureQueue,
    CaptureUnreadable,
    store_captured,
)
from vinery_accounts.models import AuditEntry, Capture, Organization, Project

pytestmark = pytest.mark.stores

BODY = b'{"model": "tiny-chat", "prompt": "My e-mail is anna@mail.example"}'
ANSWER = b'{"choices": [{"text": "So it is anna@mail.example, Anna"}]}'


@pytest.fixture
def project(db: None) -> Project:
    organization = changes.add(Organization(name="acme"))
    return changes.add(Project(organization=organization, name="search", capture_hours=2))


def taken(project: Project, request_id: str = "req_1", **more: Any) -> CapturedRequest:
    values: dict[str, Any] = {"body": BODY, "answer": ANSWER, **more}
    for name in ("body", "answer"):
        values.setdefault(f"num_{name}_bytes", len(values[name]))
    return captured(project, request_id, **values)


def texts_of(request_id: str = "req_1") -> tuple[bytes, bytes]:
    texts = store.read(Capture.objects.get(request_id=request_id))
    return texts.body, texts.answer


# -- Stored


def test_a_capture_can_be_read_is_stored_encrypted_and_is_marked_if_cut(project: Project) -> None:
    assert store_captured([taken(project)])
    assert texts_of() == (BODY, ANSWER)
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM accounts_capture")
        (row,) = cursor.fetchall()
    texts = (each if isinstance(each, bytes | memoryview) else str(each).encode() for each in row)
    dump = b" ".join(texts)
    for word in (b"anna", b"prompt", b"choices", b"tiny-chat"):
        assert word not in dump

    store_captured([taken(project, "req_2", num_body_bytes=MAX_TEXT_BYTES + 1)])
    cut = Capture.objects.get(request_id="req_2")
    assert (cut.is_body_cut, cut.is_answer_cut, cut.num_body_bytes) == (True, False, 262145)


def test_matches_of_the_redaction_rules_are_not_stored(project: Project) -> None:
    changes.change(project, capture_redactions=["email", "ANNA"])
    store_captured([taken(project), taken(project, "req_2", body=b'{"prompt": "anna')])

    body, answer = texts_of()
    assert b"anna" not in (body + answer).lower()
    assert b"My e-mail is" in body
    assert b"So it is" in answer
    first, second = (Capture.objects.get(request_id=each) for each in ("req_1", "req_2"))
    assert (first.is_redacted, first.is_body_cut) == (True, False)
    assert (second.is_redacted, second.is_body_cut) == (True, True)
    assert texts_of("req_2")[0] == b""


def test_a_capture_is_unreadable_with_another_row_or_key(project: Project, settings: Any) -> None:
    store_captured([taken(project), taken(project, "req_2")])
    first, second = Capture.objects.order_by("request_id")
    first.encrypted_texts = second.encrypted_texts
    first.save()
    with pytest.raises(CaptureUnreadable, match="another request"):
        texts_of("req_1")

    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another key", []
    with pytest.raises(CaptureUnreadable, match="secret key"):
        texts_of("req_2")
    assert not AuditEntry.objects.filter(action="capture.read").exists()


# -- Deletion


def test_nothing_is_stored_if_captures_are_turned_off_before_or_during_a_write(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    encrypt, late = store.encrypt, taken(project)

    def slowly(texts: Any) -> bytes:
        changes.change(project, capture_hours=0)
        return encrypt(texts)

    with monkeypatch.context() as patch:
        patch.setattr(store, "encrypt", slowly)
        assert not store_captured([late])
    assert store_captured([late])
    assert not Capture.stored.exists()


def test_turning_captures_off_or_removing_the_project_deletes_them(project: Project) -> None:
    other = changes.add(Project(organization=project.organization, name="b", capture_hours=1))
    store_captured([taken(project), taken(other, "req_2")])

    changes.change(project, capture_hours=0)
    assert [row.request_id for row in Capture.stored.all()] == ["req_2"]

    changes.remove(other)
    assert not Capture.stored.exists()


def test_expired_captures_are_hidden_and_no_retention_gets_longer(project: Project) -> None:
    store_captured([taken(project, created_at=datetime.now(UTC) - timedelta(hours=3))])
    assert not Access(None, is_superuser=True).rows(Capture).exists()
    assert Capture.stored.delete_expired(datetime.now(UTC)) == 1
    assert not Capture.stored.exists()

    now = datetime.now(UTC)
    old = taken(project, created_at=now - timedelta(minutes=90))
    store_captured([old, taken(project, "req_2")])
    changes.change(project, capture_hours=1)
    assert [row.request_id for row in Capture.objects.all()] == ["req_2"]
    assert Capture.stored.count() == 2
    assert Capture.stored.delete_expired(now) == 1
    changes.change(project, capture_hours=700)
    assert Capture.objects.get().expires_at < now + timedelta(hours=2)


@rows("name, value", [("hours", 721), ("hours", -1), ("redactions", ["x"] * 21)])
def test_invalid_settings_are_refused(project: Project, name: str, value: object) -> None:
    with pytest.raises(ValidationError):
        changes.change(Project.objects.get(pk=project.pk), **{f"capture_{name}": value})


def test_changes_and_reads_are_logged_without_the_text(project: Project) -> None:
    changes.change(project, capture_hours=5)
    entry = AuditEntry.objects.get(action="project.update")
    assert (entry.before, entry.after) == ({"capture_hours": 2}, {"capture_hours": 5})

    store_captured([taken(project)])
    texts_of()
    entry = AuditEntry.objects.get(action="capture.read")
    assert (entry.target, entry.before, entry.after) == ("req_1", None, None)
    assert entry.organization_id == project.organization_id
    changes.remove(Capture.objects.get())
    assert "encrypted_texts" not in (AuditEntry.objects.get(action="capture.delete").before or {})
    assert audit.verify().broken is None


# -- The queue


class Database:
    """A database that stores captures, or is unavailable."""

    def __init__(self) -> None:
        self.stored: list[str] = []
        self.is_unavailable = False
        self.poison = ""

    def store(self, batch: Sequence[CapturedRequest]) -> bool:
        if self.is_unavailable:
            raise OperationalError("unavailable")
        ids = [each.request_id for each in batch]
        if self.poison in ids:
            raise ValueError("odd")
        self.stored += ids
        return True


def a(request_id: str, num_bytes: int = 10) -> CapturedRequest:
    return taken(Project(pk=1), request_id, body=b"x" * num_bytes, answer=b"")


def test_while_the_database_is_unavailable_the_newest_are_dropped_and_counted() -> None:
    database = Database()
    queue = CaptureQueue(store=database.store, max_captures=3)
    database.is_unavailable = True
    for number in range(5):
        queue.put(a(str(number)))
        queue.store()
    assert (len(queue), queue.num_dropped) == (3, 2)
    database.is_unavailable = False
    queue.store()
    queue.put(a("5"))
    queue.store()
    assert database.stored == ["0", "1", "2", "5"]
    assert len(queue) == 0


def test_the_queue_is_limited_in_bytes() -> None:
    database = Database()
    queue = CaptureQueue(store=database.store, max_bytes=100)
    for number, size in enumerate((60, 41, 40, 1)):
        queue.put(a(str(number), size))
    queue.store()
    assert database.stored == ["0", "2"]
    assert queue.num_dropped == 2
    queue.put(a("later", 100))
    assert len(queue) == 1


def test_a_capture_that_cannot_be_stored_blocks_no_other(caplog: pytest.LogCaptureFixture) -> None:
    database = Database()
    queue = CaptureQueue(store=database.store)
    database.poison = "1"
    for number in range(4):
        queue.put(a(str(number)))
    queue.store()
    assert database.stored == ["0", "2", "3"]
    assert queue.num_dropped == 1
    assert "ValueError" in caplog.text
    assert "odd" not in caplog.text


def test_concurrent_threads_lose_no_captures() -> None:
    database = Database()
    queue = CaptureQueue(store=database.store)
    putting = threading.Thread(target=lambda: [queue.put(a(str(at))) for at in range(900)])
    putting.start()
    while putting.is_alive() or len(queue):
        queue.store()
    assert database.stored == [str(at) for at in range(900)]
