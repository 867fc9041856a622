"""Errors of accounts, and how requests end. Messages of errors are for clients and explain what to
change."""

from enum import StrEnum
from typing import Final

from django.db import InterfaceError, OperationalError

DATABASE_UNAVAILABLE: Final = (OperationalError, InterfaceError)
"""What Django raises when the database does not answer."""


class Refusal(StrEnum):
    """Why authentication failed. Metrics and logs use these values."""

    MISSING = "missing"
    MALFORMED = "malformed"
    UNKNOWN = "unknown"
    REVOKED = "revoked"
    EXPIRED = "expired"
    PAUSED = "paused"
    OWNER_INACTIVE = "owner_inactive"
    PROJECT_INACTIVE = "project_inactive"
    OWNER_DEMOTED = "owner_demoted"


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
    Refusal.OWNER_DEMOTED: (
        "The owner of this admin key is no longer an administrator of the platform. Use a key of "
        "an administrator."
    ),
    Refusal.PROJECT_INACTIVE: (
        "The project of this API key, or its organisation, has been deactivated. Ask an "
        "administrator."
    ),
}


class AccountsError(Exception):
    """Root of all errors of accounts."""


class KeyRefused(AccountsError):
    """A 401: the caller has no key, or one that is not valid now."""

    def __init__(self, reason: Refusal) -> None:
        self.reason = reason
        self.message = _ADVICE[reason]
        super().__init__(self.message)


class NotAllowed(AccountsError):
    """A 403: the key is valid, but does not permit this. `param` names the request's field."""

    def __init__(self, message: str, *, code: str, param: str | None = None) -> None:
        self.message = message
        self.code = code
        self.param = param
        super().__init__(message)


class AppendOnly(AccountsError):
    def __init__(self) -> None:
        super().__init__("The audit log is append-only: entries cannot be changed or deleted.")


QUOTA_EXCEEDED: Final = "quota_exceeded"
"""The `finish_reason` of an answer that a limit cut short, `QUOTA` of
`vinery_serving/core/events`."""


class Outcome(StrEnum):
    """How a request ended. The values are stored."""

    OK = "ok"
    CLIENT_GONE = "client_gone"
    REJECTED = "rejected"
    FAILED = "failed"
    INTERRUPTED = "interrupted"

    @property
    def label(self) -> str:
        return self.value.replace("_", " ")

    @property
    def is_error(self) -> bool:
        """Whether the client received less than requested, without having disconnected."""
        return self in (Outcome.REJECTED, Outcome.FAILED, Outcome.INTERRUPTED)
