"""What all answers are made of. Members without a default are always there; those with `ABSENT`
only where they have something to say."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, ConfigDict

# Stands for the default of a member that may be absent, but is not null.
ABSENT: Final[Any] = None

# The stop string or stop token that ended it, or `repetition_detected`; null otherwise.
StopReason = str | int | None
Count = int


def _open(schema: dict[str, Any]) -> None:
    """Clients are to expect more members one day."""
    schema.pop("additionalProperties", None)


class Answer(BaseModel):
    """The base: in tests, a member that is not described is an error."""

    model_config = ConfigDict(strict=True, extra="forbid", json_schema_extra=_open)
