"""What this room refuses, as one small tree.

    AccountsError
     └─ KeyRefused     the caller did not prove who it is

The door that catches `KeyRefused` answers 401 with its message, which says what to do.
"""

from __future__ import annotations

from enum import StrEnum


class Refusal(StrEnum):
    """Why a caller is not let in. Closed: metrics and logs count by these names."""

    MISSING = "missing"
    MALFORMED = "malformed"
    UNKNOWN = "unknown"
    REVOKED = "revoked"
    EXPIRED = "expired"
    OWNER_INACTIVE = "owner_inactive"


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
    Refusal.OWNER_INACTIVE: (
        "The owner of this API key has been deactivated. Ask an administrator."
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
