"""How a request ended: a stored value of usage records, journals and reports."""

from enum import StrEnum
from typing import Final

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
        """The words that users see."""
        return self.value.replace("_", " ")

    @property
    def is_error(self) -> bool:
        """Whether the client received less than it asked for, and did not disconnect itself."""
        return self in (Outcome.REJECTED, Outcome.FAILED, Outcome.INTERRUPTED)
