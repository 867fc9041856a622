"""The texts of a capture, for people: every reading is an entry of the audit log."""

from __future__ import annotations

from accounts.captures.encrypted import Texts, unseal
from accounts.models import Capture
from accounts.services import audit


def read(row: Capture) -> Texts:
    """Raises `Unreadable`, and lets errors of the database through: what cannot be written down
    is not shown."""
    with audit.writing():
        texts = unseal(row)
        audit.record("read", row)
    return texts
