"""Everything that can go wrong with a request, as one tree.

    ServingError
     ├─ InvalidRequest 400      the client must change something
     │   ├─ MissingParameter
     │   ├─ UnsupportedParameter
     │   ├─ InvalidGrammar
     │   └─ ContextTooLong
     ├─ InvalidKey 401
     ├─ NotPermitted 403
     ├─ NotFound 404
     │   └─ ModelNotFound
     ├─ MethodNotAllowed 405
     ├─ BodyTooLarge 413
     ├─ UnsupportedMediaType 415
     ├─ LimitReached 429        a limit or a quota says no
     ├─ EngineFailure 500       the engine broke under this request
     │   ├─ EngineLost
     │   └─ DeadlineExceeded
     └─ Unavailable 503         try again later
         ├─ Overloaded
         └─ ModelNotReady

Errors are raised, never returned, and become bytes in one place per protocol. The
message is all that a client's user sees: it says what to change.
"""

from __future__ import annotations

from collections.abc import Mapping


class ServingError(Exception):
    """Root. The class says the status and OpenAI's words for it, the instance the rest."""

    status: int = 500
    type: str = "server_error"
    code: str | None = None
    # None: let the client's own rules decide. False: a retry cannot help.
    should_retry: bool | None = None
    retry_after_s: int | None = None

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        if code is not None:
            self.code = code


class InvalidRequest(ServingError):
    """The request cannot be served as it is."""

    status = 400
    type = "invalid_request_error"
    code = "invalid_value"


class MissingParameter(InvalidRequest):
    """A field that must be there is not."""

    code = "missing_required_parameter"


class UnsupportedParameter(InvalidRequest):
    """A field that is known, but that this server cannot honour."""

    code = "unsupported_parameter"


class InvalidGrammar(InvalidRequest):
    """A schema, regex, grammar or tag that cannot be compiled."""

    code = "invalid_grammar"


class ContextTooLong(InvalidRequest):
    """Prompt and answer do not fit into the model's context.

    The wording is OpenAI's: client libraries recognise it by its text.
    """

    code = "context_length_exceeded"

    def __init__(
        self, *, max_context: int, num_prompt_tokens: int, num_output_tokens: int, param: str
    ) -> None:
        asked = num_prompt_tokens + num_output_tokens
        super().__init__(
            f"This model's maximum context length is {max_context} tokens. However, you "
            f"requested {asked} tokens ({num_prompt_tokens} in the {param}, "
            f"{num_output_tokens} in the completion). Please reduce the length of the "
            f"{param} or completion.",
            param=param,
        )


class InvalidKey(ServingError):
    """The API key is missing, malformed, unknown, revoked or expired."""

    status = 401
    type = "invalid_request_error"
    code = "invalid_api_key"


class NotPermitted(ServingError):
    """The API key is good, but not for this."""

    status = 403
    type = "invalid_request_error"
    code = "permission_denied"
    should_retry = False


class LimitReached(ServingError):
    """A limit on requests or tokens, or a quota, leaves no room for this one."""

    status = 429
    type = "requests"
    code = "rate_limit_exceeded"

    def __init__(self, message: str, *, type_: str, code: str, headers: Mapping[str, str]) -> None:
        """`headers` tell how full the limits are, and when to come again."""
        super().__init__(message, code=code)
        self.type = type_
        self.headers = headers


class NotFound(ServingError):
    """No such thing at this URL."""

    status = 404
    type = "invalid_request_error"
    code = "not_found"


class ModelNotFound(NotFound):
    """No served model has this name."""

    code = "model_not_found"


class MethodNotAllowed(ServingError):
    """The URL exists, but not for this method."""

    status = 405
    type = "invalid_request_error"
    code = "method_not_allowed"

    def __init__(self, method: str, *, allowed: str) -> None:
        super().__init__(f"Use {allowed} here, not {method}.")
        self.allowed = allowed


class BodyTooLarge(ServingError):
    """The request body is larger than the server accepts."""

    status = 413
    type = "invalid_request_error"
    code = "request_too_large"


class UnsupportedMediaType(ServingError):
    """The body is not JSON."""

    status = 415
    type = "invalid_request_error"
    code = "unsupported_media_type"


class EngineFailure(ServingError):
    """The engine could not finish this request."""

    code = "engine_error"


class EngineLost(EngineFailure):
    """The engine process ended while it ran this request."""

    code = "engine_lost"


class DeadlineExceeded(EngineFailure):
    """The request ran longer than it may."""

    code = "deadline_exceeded"
    should_retry = False


class Unavailable(ServingError):
    """Nothing is wrong with the request: come back later."""

    status = 503
    code = "unavailable"
    retry_after_s = 1


class Overloaded(Unavailable):
    """All places, running and waiting, are taken."""

    code = "overloaded"


class ModelNotReady(Unavailable):
    """The model is not loaded, or its engine is starting."""

    code = "model_not_ready"
    retry_after_s = 2


def error_from_code(code: str, message: str, *, param: str | None = None) -> ServingError:
    """The error that another process named by its code. An unknown code of the engine is
    a request that it could not run."""
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
