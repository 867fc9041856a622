"""Errors in the form of Anthropic's API.

The status is that of the error everywhere. An overloaded server answers 503, not Anthropic's 529,
which load balancers do not know; the type is `overloaded_error` in any case.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal

from msgspec import UNSET, UnsetType

from vinery_serving.core.errors import ContextTooLong, ServingError
from vinery_serving.protocols.common.encoding import Answer, one_of

_TYPES: Final[Mapping[int, str]] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}

# The numbers of a context that is too small: its size, the prompt, the answer. Of an error from
# another process only the text is known.
_NUMBERS: Final = re.compile(r"length is (\d+) tokens.* \((\d+) in .*, (\d+) in the completion\)")


class MessageErrorDetails(Answer, kw_only=True):
    type: Annotated[str, one_of("invalid_request_error", *_TYPES.values(), "api_error")]
    message: str


class MessageError(Answer, kw_only=True):
    """The body of every error of this endpoint, in Anthropic's form."""

    type: Literal["error"] = "error"
    error: MessageErrorDetails
    request_id: str | UnsetType = UNSET


def error_object(error: ServingError, request_id: str | None = None) -> MessageError:
    """Return the body of an error, or the data of an `error` event, which has no request id."""
    details = MessageErrorDetails(type=_type_of(error.status), message=_message(error))
    return MessageError(error=details, request_id=UNSET if request_id is None else request_id)


def _message(error: ServingError) -> str:
    """Clients shorten their conversation where they find Anthropic's own sentences."""
    found = _NUMBERS.search(error.message) if isinstance(error, ContextTooLong) else None
    if found is None:
        return error.message
    most, num_prompt, num_output = map(int, found.groups())
    if num_prompt > most or not num_output:
        most = min(most, num_prompt - 1)  # a prompt that fills the context leaves no answer
        return f"prompt is too long: {num_prompt} tokens > {most} maximum"
    return (
        f"input length and `max_tokens` exceed context limit: {num_prompt} + {num_output} > "
        f"{most}, decrease input length or `max_tokens` and try again"
    )


def _type_of(status: int) -> str:
    return _TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
