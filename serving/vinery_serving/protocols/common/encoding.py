"""Answers as types, and JSON, server-sent events and errors as bytes, in a form that every tested
client reads.

Events have no `id:` lines, no empty `data:` and no NaN, because each of them breaks a client.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Union, get_args

import msgspec
from msgspec import UNSET, UnsetType
from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from vinery_serving.core.errors import InvalidKey, LimitReached, MethodNotAllowed, ServingError

DONE = b"data: [DONE]\n\n"

# A comment before an event or another comment. It has one newline, because some clients read
# a comment and a blank line as an empty event.
KEEP_ALIVE = b": keep-alive\n"

# JSON strings may contain these characters, but some clients split lines at them.
_LINE_ENDS = (
    (b"\xe2\x80\xa8", b"\\u2028"),
    (b"\xe2\x80\xa9", b"\\u2029"),
    (b"\xc2\x85", b"\\u0085"),
)

_encode = msgspec.json.Encoder().encode


class Answer(msgspec.Struct, kw_only=True):
    """Base of the types of answers and of the events of streams, and of what is in them.

    The encoders build them, and the OpenAPI document shows them. JSON has the members in the
    order of the fields; a member that is `UNSET` is absent.
    """

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """A JSON object, in which a test finds members that are no fields."""
        members = {
            field.encode_name: core_schema.typed_dict_field(
                handler.generate_schema(_present(field.type)),
                required=field.default is not UNSET,
            )
            for field in msgspec.structs.fields(cls)
        }
        return core_schema.typed_dict_schema(
            members,
            cls=cls,
            ref=f"{cls.__module__}.{cls.__name__}:{id(cls)}",
            extra_behavior="forbid",
            config={"strict": True},
        )


def _present(kind: Any) -> Any:
    """Return the type of a member that is not absent."""
    options = get_args(kind)
    if UnsetType not in options:
        return kind
    return Union[tuple(each for each in options if each is not UnsetType)]  # noqa: UP007


def one_of(*words: str) -> Any:
    """Return the annotation of a text that is one of these words."""
    return Field(json_schema_extra={"enum": list(words)})


class ErrorDetails(Answer, kw_only=True):
    message: str
    type: Annotated[
        str, one_of("invalid_request_error", "server_error", "requests", "insufficient_quota")
    ]
    param: Annotated[
        str | None, Field(description="The path of the field, such as `messages[2].content`.")
    ]
    code: Annotated[str | None, Field(description="docs/errors.md lists all codes.")]


class Error(Answer, kw_only=True):
    """The body of every error, and the last event of a failed stream."""

    error: ErrorDetails


def json_bytes(value: object) -> bytes:
    """Return `value` as compact JSON without any line separator. NaN and infinities become
    null."""
    try:
        encoded = _encode(value)
    except OverflowError:
        # Only the standard library writes integers of more than 64 bits.
        plain = msgspec.to_builtins(value)
        encoded = json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode()
    return _on_one_line(encoded)


def json_members(members: Answer | Mapping[str, object]) -> bytes:
    """Return the members of a JSON object without its braces."""
    return json_bytes(members)[1:-1]


def json_text(text: str) -> bytes:
    """Return `text` as a JSON string with its quotes. Runs for every token."""
    encoded = _encode(text)
    return encoded if text.isascii() else _on_one_line(encoded)


def frame(payload: bytes) -> bytes:
    """Return an event without a name."""
    return b"data: %b\n\n" % payload


def named_frame(name: str, payload: bytes) -> bytes:
    """Return an event with a name."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), payload)


def error_object(error: ServingError) -> Error:
    """Return the body of an error, or an event of a stream."""
    details = ErrorDetails(
        message=error.message, type=error.type, param=error.param, code=error.code
    )
    return Error(error=details)


def error_body(error: ServingError) -> bytes:
    """Return the JSON body of an error response."""
    return json_bytes(error_object(error))


def error_headers(error: ServingError) -> dict[str, str]:
    """Return the headers of an error response, such as those about retries."""
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


def _on_one_line(encoded: bytes) -> bytes:
    for raw, escaped in _LINE_ENDS:
        if raw in encoded:
            encoded = encoded.replace(raw, escaped)
    return encoded
