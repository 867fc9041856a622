"""The errors of a request, as one class tree. docs/errors.md lists all codes.

Errors are raised, never returned. Each protocol encodes them in one function. The message is
the only part that a client's user sees, so it states what to change.
"""

from __future__ import annotations

from collections.abc import Mapping


class ServingError(Exception):
    """Root of the tree. The class holds the HTTP status and the defaults of OpenAI's `type` and
    `code`; the instance holds the message and the field."""

    status: int = 500
    type: str = "server_error"
    code: str | None = None
    # The header `x-should-retry`. None: no header, so that the client's own rules apply.
    should_retry: bool | None = None
    # The header `Retry-After`, in seconds.
    retry_after_s: int | None = None

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        """`param` is the path of the request field, such as `messages[2].content`."""
        super().__init__(message)
        self.message = message
        self.param = param
        if code is not None:
            self.code = code


class ClientError(ServingError):
    """The client must change the request or its key."""

    status = 400
    type = "invalid_request_error"


class InvalidRequest(ClientError):
    """The client must change the request."""

    code = "invalid_value"


class MissingParameter(InvalidRequest):
    """A required field is missing."""

    code = "missing_required_parameter"


class UnsupportedParameter(InvalidRequest):
    """This server knows the field, but cannot do what the field or its value asks for."""

    code = "unsupported_parameter"


class InvalidGrammar(InvalidRequest):
    """The schema, regular expression, grammar or structural tag cannot be compiled."""

    code = "invalid_grammar"


class ContextTooLong(InvalidRequest):
    """The prompt and the answer do not fit into the model's context.

    The wording is OpenAI's, because client libraries recognise this error by its text.
    """

    code = "context_length_exceeded"

    def __init__(
        self, *, max_context: int, num_prompt_tokens: int, num_output_tokens: int, param: str
    ) -> None:
        num_requested = num_prompt_tokens + num_output_tokens
        super().__init__(
            f"This model's maximum context length is {max_context} tokens. However, you "
            f"requested {num_requested} tokens ({num_prompt_tokens} in the {param}, "
            f"{num_output_tokens} in the completion). Please reduce the length of the "
            f"{param} or completion.",
            param=param,
        )


class InvalidKey(ClientError):
    """The API key is missing, malformed, unknown, revoked or expired."""

    status = 401
    code = "invalid_api_key"


class NotPermitted(ClientError):
    """The API key is valid, but does not permit this request."""

    status = 403
    code = "permission_denied"
    should_retry = False


class LimitReached(ServingError):
    """The request exceeds a rate limit or a quota."""

    status = 429
    type = "requests"
    code = "rate_limit_exceeded"

    def __init__(self, message: str, *, type_: str, code: str, headers: Mapping[str, str]) -> None:
        """`headers` report the limits, their use, and the time of the next permitted request."""
        super().__init__(message, code=code)
        self.type = type_
        self.headers = headers


class NotFound(ClientError):
    """The URL does not exist."""

    status = 404
    code = "not_found"


class ModelNotFound(NotFound):
    """No served model has this name."""

    code = "model_not_found"


class MethodNotAllowed(ClientError):
    """The URL exists, but does not accept this HTTP method."""

    status = 405
    code = "method_not_allowed"

    def __init__(self, method: str, *, allowed: str) -> None:
        super().__init__(f"Use {allowed} here, not {method}.")
        self.allowed = allowed


class BodyTooLarge(ClientError):
    """The request body is larger than the server accepts."""

    status = 413
    code = "request_too_large"


class UnsupportedMediaType(ClientError):
    """The body is not JSON."""

    status = 415
    code = "unsupported_media_type"


class EngineFailure(ServingError):
    """The engine could not finish the request."""

    code = "engine_error"


class EngineLost(EngineFailure):
    """The engine process ended while it ran the request."""

    code = "engine_lost"


class DeadlineExceeded(EngineFailure):
    """The request exceeded its time limit."""

    code = "deadline_exceeded"
    should_retry = False


class Unavailable(ServingError):
    """The request is valid, but the server cannot run it now. The client may retry it."""

    status = 503
    code = "unavailable"
    retry_after_s = 1


class Overloaded(Unavailable):
    """All slots for running and waiting requests are in use."""

    code = "overloaded"


class ModelNotReady(Unavailable):
    """The model is not loaded, or its engine is starting."""

    code = "model_not_ready"
    retry_after_s = 2


def error_from_code(code: str, message: str, *, param: str | None = None) -> ServingError:
    """Return the error for a code that an engine process sent. An unknown code becomes
    `InvalidRequest`: the engine could not run the request."""
    kind = _BY_CODE.get(code)
    if kind is None:
        return InvalidRequest(message, param=param, code=code)
    return kind(message, param=param)


_BY_CODE: dict[str, type[ServingError]] = {
    kind.code or "": kind
    for kind in (
        InvalidRequest,
        InvalidGrammar,
        EngineFailure,
        EngineLost,
        DeadlineExceeded,
        Overloaded,
        ModelNotReady,
    )
}
