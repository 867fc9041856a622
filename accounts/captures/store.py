"""Redacts, encrypts and stores captures by the current settings of their project."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec
from django.db import transaction

from accounts.base.redaction import Redactor
from accounts.captures.documents import redacted
from accounts.captures.encrypted import Texts, encrypt
from accounts.models import Capture, Project

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
        """The size in memory."""
        return len(self.body) + len(self.answer)


class Policy(NamedTuple):
    """The capture settings of a project."""

    hours: int
    redactions: Sequence[str]


def store_captured(taken: Sequence[CapturedRequest]) -> bool:
    """Store a batch, except for projects that have turned captures off.

    Returns False, and stores nothing, if a project's settings changed meanwhile. Raises
    `django.db.Error`.
    """
    ids = {each.project_id for each in taken}
    policies = _policies(ids)
    rows = [
        _row(each, policy)
        for each in taken
        if (policy := policies.get(each.project_id)) is not None
    ]
    with transaction.atomic():
        # A change of a project waits from here on, so that turning captures off deletes all.
        if _policies(ids, is_locked=True) != policies:
            return False
        Capture.objects.bulk_create(rows, ignore_conflicts=True)
    return True


def _policies(ids: Iterable[int], *, is_locked: bool = False) -> Mapping[int, Policy]:
    """Return the settings of projects that capture."""
    projects = Project.objects.filter(pk__in=ids).order_by("pk")
    if is_locked:
        projects = projects.select_for_update(no_key=True)
    columns = projects.values_list("pk", "capture_hours", "capture_redactions")
    return {pk: Policy(hours, redactions) for pk, hours, redactions in columns if hours}


def _row(taken: CapturedRequest, policy: Policy) -> Capture:
    is_body_cut = taken.num_body_bytes > len(taken.body)
    is_answer_cut = taken.num_answer_bytes > len(taken.answer)
    body, answer, is_redacted = taken.body, taken.answer, False
    if policy.redactions:
        redactor = Redactor(policy.redactions, spared=taken.model)
        body, is_body_missing, is_body_redacted = _redacted(body, redactor, is_cut=is_body_cut)
        answer, is_answer_missing, is_answer_redacted = _redacted(
            answer, redactor, is_cut=is_answer_cut
        )
        is_body_cut, is_answer_cut = (
            is_body_cut or is_body_missing,
            is_answer_cut or is_answer_missing,
        )
        is_redacted = is_body_redacted or is_answer_redacted
    return Capture(
        request_id=taken.request_id,
        project_id=taken.project_id,
        created_at=taken.created_at,
        expires_at=taken.created_at + timedelta(hours=policy.hours),
        dialect=taken.dialect,
        endpoint=taken.endpoint,
        num_body_bytes=taken.num_body_bytes,
        num_answer_bytes=taken.num_answer_bytes,
        is_body_cut=is_body_cut,
        is_answer_cut=is_answer_cut,
        is_redacted=is_redacted,
        encrypted_texts=encrypt(Texts(taken.request_id, body, answer)),
    )


def _redacted(text: bytes, redactor: Redactor, *, is_cut: bool) -> tuple[bytes, bool, bool]:
    """Return the text to store, whether it was removed, and whether any of it is missing."""
    if not text:
        return b"", False, False
    found = redacted(text, redactor, is_cut=is_cut)
    return (b"", True, True) if found is None else (found[0], False, found[1])
