"""Redacts, encrypts and stores captures by the current settings of the project."""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple

import msgspec
from django.db import transaction

from vinery_accounts.access import audit
from vinery_accounts.base.encryption import cipher
from vinery_accounts.base.errors import DATABASE_UNAVAILABLE
from vinery_accounts.base.redaction import Redactor
from vinery_accounts.captures.documents import redacted
from vinery_accounts.models import Capture, Project

MAX_TEXT_BYTES = 256 * 1024


class CapturedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request and its answer, each cut to `MAX_TEXT_BYTES`. The sizes are those before."""

    request_id: str
    project_id: int
    created_at: datetime
    dialect: str
    endpoint: str
    model: str  # the serving model; empty if none served the request
    body: bytes
    answer: bytes
    num_body_bytes: int
    num_answer_bytes: int

    @property
    def num_kept_bytes(self) -> int:
        return len(self.body) + len(self.answer)


class _Kept(NamedTuple):
    """A text to store. `is_cut`: only a part of it is left; `is_redacted`: matches are missing."""

    text: bytes
    is_cut: bool
    is_redacted: bool


def store_captured(taken: Sequence[CapturedRequest]) -> bool:
    """Store a batch, except for projects that have turned captures off. Returns False, and stores
    nothing, if a project's settings changed meanwhile. Raises `django.db.Error`."""
    ids = {each.project_id for each in taken}
    policies = _policies(ids)
    rows = [_row(each, *policies[each.project_id]) for each in taken if each.project_id in policies]
    with transaction.atomic():
        # A change of a project waits from here on, so that turning captures off deletes all.
        if _policies(ids, is_locked=True) != policies:
            return False
        Capture.objects.bulk_create(rows, ignore_conflicts=True)
    return True


def _policies(
    ids: Iterable[int], *, is_locked: bool = False
) -> Mapping[int, tuple[int, Sequence[str]]]:
    projects = Project.objects.filter(pk__in=ids).order_by("pk")
    if is_locked:
        projects = projects.select_for_update(no_key=True)
    columns = projects.values_list("pk", "capture_hours", "capture_redactions")
    return {pk: (hours, redactions) for pk, hours, redactions in columns if hours}


def _row(taken: CapturedRequest, hours: int, redactions: Sequence[str]) -> Capture:
    redactor = Redactor(redactions, spared=taken.model) if redactions else None
    body = _kept(taken.body, taken.num_body_bytes, redactor)
    answer = _kept(taken.answer, taken.num_answer_bytes, redactor)
    return Capture(
        request_id=taken.request_id,
        project_id=taken.project_id,
        created_at=taken.created_at,
        expires_at=taken.created_at + timedelta(hours=hours),
        dialect=taken.dialect,
        endpoint=taken.endpoint,
        num_body_bytes=taken.num_body_bytes,
        num_answer_bytes=taken.num_answer_bytes,
        is_body_cut=body.is_cut,
        is_answer_cut=answer.is_cut,
        is_redacted=body.is_redacted or answer.is_redacted,
        encrypted_texts=encrypt(Texts(taken.request_id, body.text, answer.text)),
    )


def _kept(text: bytes, num_bytes: int, redactor: Redactor | None) -> _Kept:
    is_cut = num_bytes > len(text)
    if redactor is None or not text:
        return _Kept(text, is_cut, False)
    found = redacted(text, redactor, is_cut=is_cut)
    return _Kept(b"", True, True) if found is None else _Kept(found[0], is_cut, found[1])


# -- Encrypted texts


_PURPOSE = b"vinery captures"


class CaptureUnreadable(Exception):
    """The texts cannot be decrypted. The message contains the reason."""


class Texts(msgspec.Struct, frozen=True):
    request_id: str
    body: bytes
    answer: bytes


def encrypt(texts: Texts) -> bytes:
    return cipher(_PURPOSE).encrypt(msgspec.msgpack.encode(texts))


def decrypt(row: Capture) -> Texts:
    """Decrypt the texts of a row. Raises `CaptureUnreadable`."""
    from cryptography.fernet import InvalidToken

    try:
        opened = cipher(_PURPOSE).decrypt(bytes(row.encrypted_texts))
    except InvalidToken:
        raise CaptureUnreadable(
            "The texts cannot be read: the server's secret key has changed."
        ) from None
    texts = msgspec.msgpack.decode(opened, type=Texts)
    if texts.request_id != row.request_id:
        raise CaptureUnreadable("The texts belong to another request: the row was changed.")
    return texts


def read(row: Capture) -> Texts:
    """Return the texts of a row after writing an audit entry. Raises `CaptureUnreadable`, and
    `django.db.Error` if the entry cannot be written."""
    with audit.writing():
        texts = decrypt(row)
        audit.record("read", row)
    return texts


# -- Queue of a web process


logger = logging.getLogger(__name__)


class CaptureQueue:
    """A bounded queue. One thread may call `put` while another calls `store`."""

    def __init__(
        self,
        *,
        store: Callable[[Sequence[CapturedRequest]], bool] = store_captured,
        max_captures: int = 1000,
        max_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        """`store` returns whether the batch is stored; if not, `store` gets the batch again."""
        self._store = store
        self._max_captures = max_captures
        self._max_bytes = max_bytes
        self._waiting: deque[CapturedRequest] = deque()
        # Of all captures so far: each sum is changed by one of the two threads.
        self._num_bytes_put = self._num_bytes_taken = 0
        # Captures that did not fit or could not be stored.
        self.num_dropped = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, taken: CapturedRequest) -> None:
        num_bytes = self._num_bytes_put + taken.num_kept_bytes
        is_full = len(self._waiting) >= self._max_captures
        if is_full or num_bytes - self._num_bytes_taken > self._max_bytes:
            self.num_dropped += 1
            return
        self._num_bytes_put = num_bytes
        self._waiting.append(taken)

    def store(self) -> None:
        """Store waiting captures. Captures wait while the database is unavailable; a capture with
        another error is dropped."""
        num_in_batch = 50
        while batch := list(islice(self._waiting.copy(), num_in_batch)):
            try:
                if not self._store(batch):
                    return
            except DATABASE_UNAVAILABLE as error:
                reason = str(error).partition("\n")[0]
                logger.warning("%d captures wait for the database: %s", len(self), reason)
                return
            except Exception as error:
                # One bad capture must not block the others. The error's message may contain texts
                # of the capture and is not logged.
                if len(batch) > 1:
                    num_in_batch = 1
                    continue
                logger.error("a capture is dropped: %s", type(error).__name__)
                self.num_dropped += 1
            for taken in batch:
                self._waiting.popleft()
                self._num_bytes_taken += taken.num_kept_bytes
