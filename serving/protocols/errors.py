"""Errors as clients see them: OpenAI's object with all four keys, and the retry headers."""

from __future__ import annotations

from serving.core.errors import InvalidKey, LimitReached, MethodNotAllowed, ServingError
from serving.protocols.sse import json_bytes


def error_object(error: ServingError) -> dict[str, dict[str, str | None]]:
    """`{"error": {...}}`, for a body or for a frame of a stream."""
    return {
        "error": {
            "message": error.message,
            "type": error.type,
            "param": error.param,
            "code": error.code,
        }
    }


def error_body(error: ServingError) -> bytes:
    """The JSON body that goes with `error.status`."""
    return json_bytes(error_object(error))


def error_headers(error: ServingError) -> dict[str, str]:
    """The headers that steer a client's retries. Empty when its own rules will do."""
    headers = {}
    if isinstance(error, MethodNotAllowed):
        headers["Allow"] = error.allowed
    if isinstance(error, InvalidKey):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, LimitReached):
        headers |= error.headers
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(error.retry_after_s)
    if error.should_retry is not None:
        headers["x-should-retry"] = "true" if error.should_retry else "false"
    return headers
