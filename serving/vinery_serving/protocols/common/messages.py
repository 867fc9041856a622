"""The messages of chats and Responses.

The content of any role may be a string or a list of parts: texts, pictures, videos and files. A
part may have the name of either protocol, because clients mix both. Conversations that templates
accept, such as a tool message without its call, are not checked.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    Tag,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from vinery_serving.core import field_limits
from vinery_serving.core.request import ContentPart, Message, Role, TextPart, ToolCall
from vinery_serving.core.tools import custom_arguments
from vinery_serving.protocols.common.encoding import json_bytes
from vinery_serving.protocols.common.media import WireFile, WireImage, WireInputFile, WireVideo
from vinery_serving.protocols.common.parameters import (
    TEXT_LIMIT,
    Identifier,
    Limited,
    LimitedJson,
    Text,
)
from vinery_serving.protocols.common.reading import Wire, invalid, missing

_TEXT_PARTS = ("text", "input_text", "output_text", "refusal")
_MEDIA_TAGS: Mapping[object, str] = {
    "image_url": "<image>",
    "input_image": "<image>",
    "video_url": "<video>",
    "input_video": "<video>",
    "file": "<file>",
    "input_file": "<input_file>",
}


class WireText(Wire):
    """A part of a message that is text."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": ["text"]},
                {"required": ["refusal"], "properties": {"type": {"const": "refusal"}}},
            ]
        }
    )

    type: Annotated[str, Field(json_schema_extra={"enum": list(_TEXT_PARTS)})]
    text: Text | None = None
    refusal: Text | None = None

    @model_validator(mode="after")
    def _is_text(self) -> Self:
        if self.type not in _TEXT_PARTS:
            raise invalid(_type_error(self.type))
        if self._text is None:
            field = "refusal" if self.type == "refusal" else "text"
            raise missing(f"must have a `{field}`")
        return self

    def to_core(self, path: str) -> TextPart:
        return TextPart(self._text or "")

    @property
    def _text(self) -> str | None:
        return self.refusal if self.type == "refusal" else self.text


def _type_error(part_type: str) -> str:
    if "audio" in part_type:
        return "holds audio input, which no model of this server takes; send text"
    return f"must have one of these types: {', '.join((*_TEXT_PARTS, *map(str, _MEDIA_TAGS)))}"


def _part_tag(value: Any) -> str:
    """The error of an unknown type lists the types."""
    kind = value.get("type") if isinstance(value, dict) else None
    return _MEDIA_TAGS.get(kind, "<text>") if isinstance(kind, str) else "<text>"


WirePart = Annotated[
    Annotated[WireText, Tag("<text>")]
    | Annotated[WireImage, Tag("<image>")]
    | Annotated[WireVideo, Tag("<video>")]
    | Annotated[WireFile, Tag("<file>")]
    | Annotated[WireInputFile, Tag("<input_file>")],
    Discriminator(_part_tag),
]


@dataclass(frozen=True, slots=True)
class OrText:
    """Annotation of a list of content parts or blocks, which may be one text instead."""

    entries: str

    def _as_list(self, value: object) -> object:
        if isinstance(value, str):
            return [{"type": "text", "text": TEXT_LIMIT.check(value)}]
        if isinstance(value, list):
            return value
        raise invalid(f"must be a string or an array of {self.entries}")

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        read = handler(source)
        sent = core_schema.union_schema([handler.generate_schema(Text), read])
        return core_schema.no_info_before_validator_function(
            self._as_list, read, json_schema_input_schema=sent
        )


Content = Annotated[
    list[WirePart], Field(fail_fast=True), OrText("content parts"), Limited(field_limits.PARTS)
]


def content_parts(
    content: list[WirePart] | None, field: str = "content"
) -> tuple[ContentPart, ...]:
    """Return the parts of `content`; () for null. The paths of media begin with `field`."""
    return tuple(part.to_core(f"{field}[{at}]") for at, part in enumerate(content or ()))


def _as_json_text(value: object) -> object:
    """Some clients send arguments back as a parsed object."""
    return json_bytes(value).decode() if isinstance(value, dict) else value


_ArgumentsText = Annotated[str, Limited(field_limits.ARGUMENTS)]
_ArgumentsObject = Annotated[dict[str, Any], LimitedJson((field_limits.ARGUMENTS,))]
Arguments = Annotated[
    _ArgumentsText,
    BeforeValidator(_as_json_text, json_schema_input_type=_ArgumentsText | _ArgumentsObject),
]


class WireFunctionCall(Wire):
    """The name and the arguments of an earlier call."""

    name: Identifier
    arguments: Arguments | None = None

    def to_core(self, call_id: str) -> ToolCall:
        # Templates parse arguments as JSON, but many clients send "" for none.
        return ToolCall(call_id, self.name, self.arguments or "{}")


class WireFunctionToolCall(Wire):
    """An earlier call of a function."""

    id: Identifier | None = None
    type: Literal["function"] | None = None
    function: WireFunctionCall

    def to_core(self) -> ToolCall:
        return self.function.to_core(self.id or "")


class WireCustomCall(Wire):
    """The name and the input of an earlier call."""

    name: Identifier
    input: _ArgumentsText

    def to_core(self, call_id: str) -> ToolCall:
        return ToolCall(call_id, self.name, custom_arguments(self.input))


class WireCustomToolCall(Wire):
    """An earlier call of a custom tool."""

    id: Identifier | None = None
    custom: WireCustomCall

    def to_core(self) -> ToolCall:
        return self.custom.to_core(self.id or "")


def _call_tag(value: Any) -> str:
    is_custom = isinstance(value, dict) and value.get("type") == "custom"
    return "<type=custom>" if is_custom else "<call>"


WireToolCall = Annotated[
    Annotated[WireFunctionToolCall, Tag("<call>")]
    | Annotated[WireCustomToolCall, Tag("<type=custom>")],
    Discriminator(_call_tag),
]
WireToolCalls = Annotated[
    list[WireToolCall], Field(fail_fast=True), Limited(field_limits.TOOL_CALLS)
]


class PlainMessage(Wire):
    """A message of the user, the system or the developer."""

    role: Literal["system", "developer", "user"]
    content: Content
    name: Identifier | None = None

    def to_core(self) -> Message:
        return Message(Role(self.role), content_parts(self.content), name=self.name)


class AssistantMessage(Wire):
    """An earlier answer. Every field is optional."""

    content: Content | None = None
    name: Identifier | None = None
    refusal: Text | None = None
    reasoning_content: Text | None = None
    reasoning: Text | None = None
    # Whether the answer continues this message, if it is the last: Mistral's and DeepSeek's name.
    prefix: bool | None = None
    tool_calls: WireToolCalls | None = None
    function_call: WireFunctionCall | None = None

    def to_core(self) -> Message:
        parts, calls = content_parts(self.content), self.tool_calls or ()
        if self.content is None and self.refusal is not None:
            parts = (TextPart(self.refusal),)
        called = tuple(call.to_core() for call in calls)
        if not calls and self.function_call is not None:
            # The deprecated form has no call ids, so the function's name replaces one.
            called = (self.function_call.to_core(self.function_call.name),)
        reasoning = self.reasoning_content or self.reasoning
        return Message(Role.ASSISTANT, parts, self.name, reasoning, called)


class ToolMessage(Wire):
    """The output of a tool."""

    tool_call_id: Identifier
    content: Content | None = None
    name: Identifier | None = None

    def to_core(self) -> Message:
        parts = content_parts(self.content)
        return Message(Role.TOOL, parts, name=self.name, tool_call_id=self.tool_call_id)


class FunctionMessage(Wire):
    """The output of a tool in the deprecated form."""

    name: Identifier
    content: Content | None = None

    def to_core(self) -> Message:
        parts = content_parts(self.content)
        return Message(Role.TOOL, parts, name=self.name, tool_call_id=self.name)


class UnknownMessage(Wire):
    """Never valid. The error lists the roles."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]

    def to_core(self) -> Message:
        raise AssertionError("a message with a known role has its own class")


def _tag(value: Any) -> str:
    match value:
        case {"role": "system" | "developer" | "user"}:
            return "<plain>"
        case {"role": "assistant" | "tool" | "function" as role}:
            return f"<role={role}>"
        case _:
            return "<unknown>"


WireMessage = Annotated[
    Annotated[PlainMessage, Tag("<plain>")]
    | Annotated[AssistantMessage, Tag("<role=assistant>")]
    | Annotated[ToolMessage, Tag("<role=tool>")]
    | Annotated[FunctionMessage, Tag("<role=function>")]
    | Annotated[UnknownMessage, Tag("<unknown>")],
    Discriminator(_tag),
]

# `encrypted_content` is encoded, not encrypted: the same item has the text.
_PACKED_PREFIX: Final = "vinery.1."


def pack_reasoning(text: str) -> str:
    """Return `text` as the `encrypted_content` of a reasoning item. Clients without state send
    this member back instead of the text, and some drop reasoning without it."""
    return _PACKED_PREFIX + base64.urlsafe_b64encode(text.encode()).decode()


def unpack_reasoning(packed: str) -> str:
    """Return the text in an `encrypted_content`. Raises the error of a validator for any other."""
    if not packed:  # clients send it where there is no such content
        return ""
    if not packed.startswith(_PACKED_PREFIX):
        raise invalid("is of another service, which alone can read it: leave this item out")
    encoded = packed.removeprefix(_PACKED_PREFIX)
    try:
        return base64.b64decode(encoded, altchars=b"-_", validate=True).decode()
    except ValueError:
        raise invalid("was changed: send it back unchanged") from None
