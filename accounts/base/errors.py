"""What this room refuses, as one small tree.

    AccountsError
     ├─ KeyRefused     the caller did not prove who it is
     ├─ NotAllowed     it did, but may not do this
     └─ AppendOnly     nobody may: the audit log is only added to

The door that catches `KeyRefused` answers 401 with its message, which says what to do, and
403 for `NotAllowed`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from django.db import InterfaceError, OperationalError

DATABASE_UNAVAILABLE: Final = (OperationalError, InterfaceError)
"""What Django raises when the database cannot be asked."""


class Refusal(StrEnum):
    """Why a caller is not let in. Closed: metrics and logs count by these names."""

    MISSING = "missing"
    MALFORMED = "malformed"
    UNKNOWN = "unknown"
    REVOKED = "revoked"
    EXPIRED = "expired"
    PAUSED = "paused"
    OWNER_INACTIVE = "owner_inactive"
    PROJECT_INACTIVE = "project_inactive"


_ADVICE = {
    Refusal.MISSING: (
        "No API key was given. Send one in the header 'Authorization: Bearer <key>'."
    ),
    Refusal.MALFORMED: (
        "This is not an API key of this server. Copy the whole key, which begins with "
        "'vny_', and send it as 'Authorization: Bearer <key>'."
    ),
    Refusal.UNKNOWN: (
        "This API key does not exist here. It may have been deleted, or belong to another "
        "server: create a new one."
    ),
    Refusal.REVOKED: "This API key was revoked. Create a new one.",
    Refusal.EXPIRED: "This API key has expired. Move its expiry date, or create a new one.",
    Refusal.PAUSED: "This API key is paused. Resume it, or use another one.",
    Refusal.OWNER_INACTIVE: (
        "The owner of this API key has been deactivated. Ask an administrator."
    ),
    Refusal.PROJECT_INACTIVE: (
        "The project of this API key, or its organisation, has been deactivated. Ask an "
        "administrator."
    ),
}


class AccountsError(Exception):
    """Root of everything that this room raises."""


class KeyRefused(AccountsError):
    """The caller has no key, or one that does not open the door."""

    def __init__(self, reason: Refusal) -> None:
        self.reason = reason
        self.message = _ADVICE[reason]
        super().__init__(self.message)


class NotAllowed(AccountsError):
    """The key is good, but not for this. `param` is the request's field that asks too much."""

    def __init__(self, message: str, *, code: str, param: str | None = None) -> None:
        self.message = message
        self.code = code
        self.param = param
        super().__init__(message)


class AppendOnly(AccountsError):
    """An entry of the audit log was to be changed or deleted."""

    def __init__(self) -> None:
        super().__init__("The audit log is only added to: its entries stay as they are.")
