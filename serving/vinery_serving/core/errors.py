"""The errors of a request, as one class tree. docs/errors.md lists all codes.

Errors are raised, never returned. Each protocol encodes them in one function. A client's user sees
only the message, so it states what to change.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

# Messages and paths quote what a client sent: a name may have megabytes.
_MAX_MESSAGE_CHARS: Final = 4000
_MAX_PARAM_CHARS: Final = 500
_MAX_CITED_CHARS: Final = 1000
# Of usage records.
_MAX_RECORDED_CHARS: Final = 500
_MAX_RECORDED_PARAM_CHARS: Final = 200
_OPEN, _CLOSE = "\x02", "\x03"  # Around a text of the client in a message that is not encoded yet
_CITED: Final = re.compile(f"{_OPEN}[^{_CLOSE}]*{_CLOSE}")
# A step of a path that a client has named, and text that is no path.
_NAMED_STEP: Final = re.compile(r'\["(?:[^"\\]|\\.)*"\]')
_NO_PATH: Final = re.compile(r"[^\w.:/$\[\]…-].*", re.DOTALL)
_BACKTICKS: Final = re.compile("`([^`]*)`")


class ServingError(Exception):
    """Root of the tree. A class has the status and the defaults of OpenAI's `type` and `code`."""

    status: int = 500
    type: str = "server_error"
    code: str | None = None
    # The header `x-should-retry`. None: no header, so that the client's own rules apply.
    should_retry: bool | None = None
    retry_after_s: int | None = None  # the header `Retry-After`, in seconds
    recorded_as: str = ""  # instead of messages that have a text of the client

    def __init_subclass__(cls, **attributes: Any) -> None:
        """Set the attributes above that differ from those of the base class."""
        for name, value in attributes.items():
            setattr(cls, name, value)

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        """`param` is the path of the request field, such as `messages[2].content`."""
        self.template = _shortened(message, _MAX_MESSAGE_CHARS)  # with the marks of `cited`
        self.message = _unmarked(self.template)
        super().__init__(self.message)
        self.param = None if param is None else _shortened(param, _MAX_PARAM_CHARS)
        if code is not None:
            self.code = code

    @property
    def recorded(self) -> tuple[str, str]:
        """The message and the path for the usage record, without texts of the client."""
        message = _CITED.sub("…", self.recorded_as or self.template)
        message = _NAMED_STEP.sub("[…]", message)
        message = _BACKTICKS.sub(lambda found: f"`{_path_of(found[1])}`", message)
        param = _path_of(_NAMED_STEP.sub("[…]", self.param or ""))
        return message[:_MAX_RECORDED_CHARS], param[:_MAX_RECORDED_PARAM_CHARS]


def cited(text: object) -> str:
    """Return a text of the client for a message: usage records leave it out."""
    return f"{_OPEN}{_shortened(_unmarked(str(text)), _MAX_CITED_CHARS)}{_CLOSE}"


def _unmarked(text: str) -> str:
    return text.replace(_OPEN, "").replace(_CLOSE, "")


def _path_of(text: str) -> str:
    return _NO_PATH.sub("…", text)


def _shortened(text: str, limit: int) -> str:
    """The beginning and the end: paths and sentences are read from both."""
    half = limit // 2
    return text if len(text) <= limit else f"{text[:half]}…{text[-half:]}"


class ClientError(ServingError, status=400, type="invalid_request_error"):
    """The client must change the request or its key."""


class InvalidRequest(ClientError, code="invalid_value"):
    """The client must change the request."""


class MissingParameter(InvalidRequest, code="missing_required_parameter"):
    """A required field is missing."""


class UnsupportedParameter(InvalidRequest, code="unsupported_parameter"):
    """This server knows the field, but cannot do what the field or its value asks for."""


class UnknownParameter(InvalidRequest, code="unknown_parameter"):
    """This server does not know the field, and its administrator lets it refuse such fields."""


class RequestQuarantined(InvalidRequest, code="request_quarantined", should_retry=False):
    """Engines ended while they ran this request, so it is not run again."""


class InvalidGrammar(InvalidRequest, code="invalid_grammar"):
    """The schema, regular expression, grammar or structural tag cannot be compiled."""


class GrammarTooLarge(InvalidGrammar):
    """A strict schema, a pattern or a grammar is too large, or uses what is not supported."""


class ContextTooLong(InvalidRequest, code="context_length_exceeded"):
    """The prompt and the answer do not fit into the model's context.

    The wording is OpenAI's, because client libraries recognise this error by its text.
    """

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


class InvalidKey(ClientError, status=401, code="invalid_api_key"):
    """The API key is missing, malformed, unknown, revoked or expired."""


class NotPermitted(ClientError, status=403, code="permission_denied", should_retry=False):
    """The API key is valid, but does not permit this request."""


class LimitReached(ServingError, status=429, type="requests", code="rate_limit_exceeded"):
    """The request exceeds a rate limit."""

    def __init__(self, message: str, *, type_: str, code: str, headers: Mapping[str, str]) -> None:
        """`headers` report the limits, their use, and the time of the next permitted request."""
        super().__init__(message, code=code)
        self.type, self.headers = type_, headers


class TooManyBodies(
    ServingError, status=429, type="requests", code="too_many_bodies", retry_after_s=1
):
    """The running requests of this client have too many bytes of bodies in all."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(
            f"The bodies of your running requests may have {max_bytes // 2**20} MB in all. Wait "
            "until some of them are answered, or send smaller ones."
        )


class RequestStopped(ClientError, status=403, code="stopped", should_retry=False):
    """A person ended the running request."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"This request was stopped by an administrator{f': {reason}' if reason else '.'}"
        )


class NotFound(ClientError, status=404, code="not_found"):
    """The URL, or the stored object that it names, does not exist."""


class ConversationInUse(InvalidRequest, code="conversation_locked"):
    """Another response runs in the conversation."""

    def __init__(self) -> None:
        super().__init__(
            "Another process is currently operating on this conversation. Please retry in a few "
            "seconds.",
            param="conversation",
        )


class ModelNotFound(NotFound, code="model_not_found"):
    """No served model has this name."""


class MethodNotAllowed(ClientError, status=405, code="method_not_allowed"):
    """The URL exists, but does not accept this HTTP method."""

    def __init__(self, method: str, *, allowed: str) -> None:
        super().__init__(f"Use {allowed} here, not {method}.")
        self.allowed = allowed


class UpgradeRefused(ClientError, status=426, code="upgrade_required"):
    """A client asks for a WebSocket. Codex then uses HTTP at once, which it does after no other
    status."""

    def __init__(self) -> None:
        super().__init__("This server has no WebSocket here: send the request by HTTP.")


class BodyTooLarge(ClientError, status=413, code="request_too_large"):
    """The request body is larger than the server accepts."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"The request body is larger than {max_bytes // 2**20} MB.")


class UnsupportedMediaType(
    ClientError,
    status=415,
    code="unsupported_media_type",
    recorded_as="The header Content-Type must say application/json.",
):
    """The body is not JSON."""


class EngineFailure(ServingError, code="engine_error"):
    """The engine could not finish the request."""


class EngineLost(EngineFailure, code="engine_lost"):
    """Engines ended while they ran the request: two under it alone, or too many."""


class NotContinued(EngineFailure, code="not_continued"):
    """The answer was interrupted, and what was generated again differs from what was sent."""


class DeadlineExceeded(EngineFailure, code="deadline_exceeded", should_retry=False):
    """The request exceeded its time limit."""


class Unavailable(ServingError, status=503, code="unavailable", retry_after_s=1):
    """The request is valid, but the server cannot run it now. The client may retry it."""


class Overloaded(Unavailable, code="overloaded"):
    """The engine has more requests than it can serve soon. `Retry-After` is the time until
    there is room."""


class ModelNotReady(Unavailable, code="model_not_ready", retry_after_s=2):
    """The model is not loaded, or its engine is starting."""


class ShuttingDown(Unavailable, code="shutting_down", retry_after_s=5):
    """The server is being stopped. It refuses new requests, and ends those that take too long.
    The next server can run them."""

    def __init__(self) -> None:
        super().__init__("The server is being stopped, or started again. Send the request again.")


class UsageNotRecorded(Unavailable, code="usage_not_recorded", retry_after_s=10):
    """The disk is full, and the usage of further requests could be lost."""


def error_from_code(code: str, message: str, *, param: str | None = None) -> ServingError:
    """Return the error for an engine's code. An unknown code becomes `InvalidRequest`."""
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
        NotContinued,
        DeadlineExceeded,
        Overloaded,
        ModelNotReady,
    )
}
