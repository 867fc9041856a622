"""The texts of a capture, for people: every reading is an entry of the audit log."""

from __future__ import annotations

from accounts.captures.encrypted import Texts, decrypt
from accounts.models import Capture
from accounts.services import audit


def read(row: Capture) -> Texts:
    """Raises `CaptureUnreadable`, and lets errors of the database through: what cannot be written
    down is not shown."""
    with audit.writing():
        texts = decrypt(row)
        audit.record("read", row)
    return texts
