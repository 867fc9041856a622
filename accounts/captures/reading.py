"""Reads the texts of a capture, with an audit entry for each reading."""

from __future__ import annotations

from accounts.captures.encrypted import Texts, decrypt
from accounts.models import Capture
from accounts.services import audit


def read(row: Capture) -> Texts:
    """Return the texts after writing the audit entry.

    Raises `CaptureUnreadable`, and `django.db.Error` if the entry cannot be written.
    """
    with audit.writing():
        texts = decrypt(row)
        audit.record("read", row)
    return texts
