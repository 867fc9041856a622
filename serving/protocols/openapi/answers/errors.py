"""Errors, of every endpoint."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from serving.protocols.openapi.answers.base import Answer


class ErrorDetails(Answer):
    """What went wrong, and what to change."""

    message: str
    type: Literal["invalid_request_error", "server_error"]
    param: str | None = Field(description="The path of the field, such as `messages[2].content`.")
    code: str | None = Field(description="Listed in docs/errors.md.")


class Error(Answer):
    """Every error, whatever its status; also the last event of a stream that failed."""

    error: ErrorDetails
