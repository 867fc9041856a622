"""Redacts, encrypts and stores captures by the current settings of their project."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec
from django.db import transaction

from vinery_accounts.base.redaction import Redactor
from vinery_accounts.captures.documents import redacted
from vinery_accounts.captures.encrypted import Texts, encrypt
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
    """Store a batch, except for projects that have turned captures off.

    Returns False, and stores nothing, if a project's settings changed meanwhile. Raises
    `django.db.Error`.
    """
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
