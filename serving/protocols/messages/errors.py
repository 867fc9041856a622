"""Errors in the form of Anthropic's API.

The status is that of the error everywhere. An overloaded server answers 503, not Anthropic's 529,
which load balancers do not know; the type is `overloaded_error` in any case.
"""

from collections.abc import Mapping
from typing import Final

from vinery_serving.core.errors import ServingError

_TYPES: Final[Mapping[int, str]] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def error_object(error: ServingError, request_id: str | None = None) -> dict[str, object]:
    """Return the body of an error, or the data of an `error` event, which has no request id."""
    named = {} if request_id is None else {"request_id": request_id}
    details = {"type": _type_of(error.status), "message": error.message}
    return {"type": "error", "error": details, **named}


def _type_of(status: int) -> str:
    return _TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
