"""The messages of chats and Responses.

The content of any role may be a string or a list of parts: texts, pictures, videos and files. A
part may have the name of either protocol, because clients mix both. Conversations that templates
accept, such as a tool message without its call, are not checked. A data URL has the file itself.
Other URLs and paths stay as the client sent them: the media rules are checked before a fetch.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    PlainValidator,
    StringConstraints,
    Tag,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from vinery_serving.core import field_limits, media
from vinery_serving.core import request as core
from vinery_serving.core.data_urls import (
    InvalidDataUrl,
    TooManyBytes,
    decode_base64,
    decode_data_url,
    is_data_url,
)
from vinery_serving.core.dialects import V3, Dialect
from vinery_serving.core.tools import custom_arguments
from vinery_serving.protocols.common import reading
from vinery_serving.protocols.common.encoding import json_bytes

# -- Media


_Hash = Annotated[str, StringConstraints(pattern=r"^[0-9A-Fa-f]{64}$", to_lower=True)]
MediaHashes = Annotated[list[_Hash], Field(fail_fast=True), reading.Limited(field_limits.MEDIA)]
_DETAILS: Final[Mapping[str | None, media.Detail]] = {
    "low": media.Detail.LOW,
    "high": media.Detail.HIGH,
    "original": media.Detail.HIGH,
}


def _read_source(value: object) -> media.MediaSource:
    """The source that a URL or path names. Only data URLs are read."""
    if not isinstance(value, str):
        raise reading.invalid("must be a string")
    if is_data_url(value):
        return media.InlineSource(_decoded(value, decode_data_url))
    reading.Limited(field_limits.URL).check(value)
    scheme = value.partition("://")[0].lower()
    if not value.strip():
        raise reading.invalid("must not be empty: send a data URL or a URL")
    if scheme in ("http", "https"):
        return media.UrlSource(value)
    if scheme == "file":
        if value[len("file://") :].partition("/")[0].lower() not in ("", "localhost"):
            raise reading.invalid("must be the URL of a file of this server: file:///folder/name")
        # `vinery_serving.media` reads URLs and paths by one set of rules.
        return media.PathSource(value, is_bare=False)
    return media.PathSource(value)


def _decoded(text: str, decode: Callable[[str, int], bytes]) -> bytes:
    limit = field_limits.MEDIA_BYTES
    try:
        return decode(text, limit.value)
    except TooManyBytes as error:
        raise reading.invalid(limit.sentence(error.num_bytes)) from None
    except InvalidDataUrl as error:
        raise reading.invalid(str(error)) from None


def _read_file_data(value: object) -> media.MediaSource:
    """`file_data`: a data URL, or base64 alone as some clients send it."""
    if not isinstance(value, str):
        raise reading.invalid("must be a string")
    return media.InlineSource(
        _decoded(value, decode_data_url if is_data_url(value) else decode_base64)
    )


Source = Annotated[
    Any, PlainValidator(_read_source, json_schema_input_type=Annotated[str, Field(min_length=1)])
]
FileData = Annotated[Any, PlainValidator(_read_file_data, json_schema_input_type=str)]
_Detail = Literal["auto", "low", "high", "original"]
Filename = Annotated[str, reading.Limited(field_limits.FILENAME)]


class WireUrl(reading.Wire):
    """A URL in an object."""

    url: Source
    detail: _Detail | None = None


def _url_tag(value: Any) -> str:
    return "<object>" if isinstance(value, dict) else "<url>"


# A `WireUrl` or a `MediaSource`.
_UrlOrObject = Annotated[
    Annotated[Source, Tag("<url>")] | Annotated[WireUrl, Tag("<object>")], Discriminator(_url_tag)
]


def _url_object(value: Any) -> WireUrl:
    return value if isinstance(value, WireUrl) else WireUrl.model_construct(url=value)


class WireImage(reading.Wire):
    """A picture: `image_url` as in chats, or `input_image` as in Responses."""

    type: Literal["image_url", "input_image"]
    image_url: _UrlOrObject
    detail: _Detail | None = None

    def to_core(self, path: str) -> media.MediaPart:
        sent = _url_object(self.image_url)
        detail = _DETAILS.get(sent.detail or self.detail, media.Detail.AUTO)
        return media.MediaPart(media.MediaKind.IMAGE, sent.url, f"{path}.image_url", detail)


class WireVideo(reading.Wire):
    """A video: `video_url` as in vLLM and FastDeploy, or `input_video`."""

    type: Literal["video_url", "input_video"]
    video_url: _UrlOrObject

    def to_core(self, path: str) -> media.MediaPart:
        return media.MediaPart(
            media.MediaKind.VIDEO, _url_object(self.video_url).url, f"{path}.video_url"
        )


class WireFileContents(reading.Wire):
    """A file: the contents as `file_data`, or a `file_url`."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": ["file_data"]}, {"required": ["file_url"]}]}
    )

    file_data: FileData | None = None
    file_url: Source | None = None
    filename: Filename | None = None

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if self.file_data is None and self.file_url is None:
            raise reading.missing("must have `file_data`")
        if self.file_data is not None and self.file_url is not None:
            raise reading.invalid("has `file_data` and `file_url`: send one of them")
        return self

    def contents(self, path: str) -> media.MediaPart:
        is_inline = self.file_data is not None
        source: Any = self.file_data if is_inline else self.file_url
        param = f"{path}.{'file_data' if is_inline else 'file_url'}"
        return media.MediaPart(media.MediaKind.DOCUMENT, source, param, filename=self.filename)


class WireFile(reading.Wire):
    """A file as in chats."""

    type: Literal["file"]
    file: WireFileContents

    def to_core(self, path: str) -> media.MediaPart:
        return self.file.contents(f"{path}.file")


class WireInputFile(WireFileContents):
    """A file as in Responses."""

    type: Literal["input_file"]

    def to_core(self, path: str) -> media.MediaPart:
        return self.contents(path)


def check_media(conversation: core.Conversation, dialect: Dialect, field: str) -> None:
    """Raises `InvalidRequest` for too many media, and for paths under /v1."""
    sent, limit = conversation.media, field_limits.MEDIA
    if len(sent) > limit.value:
        raise reading.refusal(
            field,
            f"must have at most {limit.value} pictures, videos and files, but has {len(sent)}. "
            f"Send fewer, or ask the administrator to raise {limit.setting}",
        )
    for part in sent:
        if isinstance(part.source, media.PathSource) and part.source.is_bare and dialect is not V3:
            raise reading.refusal(
                part.param,
                "must be an http or https URL, a file:// URL or a data URL. Only /v3 takes paths",
            )


def with_hashes(
    prompt: core.Conversation | core.RawPrompts, hashes: Sequence[str]
) -> core.Conversation | core.RawPrompts:
    """Return the prompt with these hashes on its media, in order. Raises `InvalidRequest` for
    another number of hashes."""
    sent = prompt.media if isinstance(prompt, core.Conversation) else ()
    if not hashes:
        return prompt
    if len(hashes) != len(sent):
        raise reading.refusal(
            "mm_hashes", f"must have one entry for each picture, video and file: {len(sent)}"
        )
    assert isinstance(prompt, core.Conversation)
    given = iter(hashes)
    return prompt.with_media(lambda part: (replace(part, sha256=next(given)),))


# -- Messages

_TEXT_PARTS = ("text", "input_text", "output_text", "refusal")
_MEDIA_TAGS: Mapping[object, str] = {
    "image_url": "<image>",
    "input_image": "<image>",
    "video_url": "<video>",
    "input_video": "<video>",
    "file": "<file>",
    "input_file": "<input_file>",
}


class WireText(reading.Wire):
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
    text: reading.Text | None = None
    refusal: reading.Text | None = None

    @model_validator(mode="after")
    def _is_text(self) -> Self:
        if self.type not in _TEXT_PARTS:
            raise reading.invalid(_type_error(self.type))
        if self._text is None:
            field = "refusal" if self.type == "refusal" else "text"
            raise reading.missing(f"must have a `{field}`")
        return self

    def to_core(self, path: str) -> core.TextPart:
        return core.TextPart(self._text or "")

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
            return [{"type": "text", "text": reading.TEXT_LIMIT.check(value)}]
        if isinstance(value, list):
            return value
        raise reading.invalid(f"must be a string or an array of {self.entries}")

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        read = handler(source)
        sent = core_schema.union_schema([handler.generate_schema(reading.Text), read])
        return core_schema.no_info_before_validator_function(
            self._as_list, read, json_schema_input_schema=sent
        )


Content = Annotated[
    list[WirePart],
    Field(fail_fast=True),
    OrText("content parts"),
    reading.Limited(field_limits.PARTS),
]


def content_parts(
    content: list[WirePart] | None, field: str = "content"
) -> tuple[core.ContentPart, ...]:
    """Return the parts of `content`; () for null. The paths of media begin with `field`."""
    return tuple(part.to_core(f"{field}[{at}]") for at, part in enumerate(content or ()))


def _as_json_text(value: object) -> object:
    """Some clients send arguments back as a parsed object."""
    return json_bytes(value).decode() if isinstance(value, dict) else value


_ArgumentsText = Annotated[str, reading.Limited(field_limits.ARGUMENTS)]
_ArgumentsObject = Annotated[dict[str, Any], reading.limited_json(field_limits.ARGUMENTS)]
Arguments = Annotated[
    _ArgumentsText,
    BeforeValidator(_as_json_text, json_schema_input_type=_ArgumentsText | _ArgumentsObject),
]


class WireFunctionCall(reading.Wire):
    """The name and the arguments of an earlier call."""

    name: reading.Identifier
    arguments: Arguments | None = None

    def to_core(self, call_id: str) -> core.ToolCall:
        # Templates parse arguments as JSON, but many clients send "" for none.
        return core.ToolCall(call_id, self.name, self.arguments or "{}")


class WireFunctionToolCall(reading.Wire):
    """An earlier call of a function."""

    id: reading.Identifier | None = None
    type: Literal["function"] | None = None
    function: WireFunctionCall

    def to_core(self) -> core.ToolCall:
        return self.function.to_core(self.id or "")


class WireCustomCall(reading.Wire):
    """The name and the input of an earlier call."""

    name: reading.Identifier
    input: _ArgumentsText

    def to_core(self, call_id: str) -> core.ToolCall:
        return core.ToolCall(call_id, self.name, custom_arguments(self.input))


class WireCustomToolCall(reading.Wire):
    """An earlier call of a custom tool."""

    id: reading.Identifier | None = None
    custom: WireCustomCall

    def to_core(self) -> core.ToolCall:
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
    list[WireToolCall], Field(fail_fast=True), reading.Limited(field_limits.TOOL_CALLS)
]


class PlainMessage(reading.Wire):
    """A message of the user, the system or the developer."""

    role: Literal["system", "developer", "user"]
    content: Content
    name: reading.Identifier | None = None

    def to_core(self) -> core.Message:
        return core.Message(core.Role(self.role), content_parts(self.content), name=self.name)


class AssistantMessage(reading.Wire):
    """An earlier answer. Every field is optional."""

    content: Content | None = None
    name: reading.Identifier | None = None
    refusal: reading.Text | None = None
    reasoning_content: reading.Text | None = None
    reasoning: reading.Text | None = None
    # Whether the answer continues this message, if it is the last: Mistral's and DeepSeek's name.
    prefix: bool | None = None
    tool_calls: WireToolCalls | None = None
    function_call: WireFunctionCall | None = None

    def to_core(self) -> core.Message:
        parts, calls = content_parts(self.content), self.tool_calls or ()
        if self.content is None and self.refusal is not None:
            parts = (core.TextPart(self.refusal),)
        called = tuple(call.to_core() for call in calls)
        if not calls and self.function_call is not None:
            # The deprecated form has no call ids, so the function's name replaces one.
            called = (self.function_call.to_core(self.function_call.name),)
        reasoning = self.reasoning_content or self.reasoning
        return core.Message(core.Role.ASSISTANT, parts, self.name, reasoning, called)


class ToolMessage(reading.Wire):
    """The output of a tool."""

    tool_call_id: reading.Identifier
    content: Content | None = None
    name: reading.Identifier | None = None

    def to_core(self) -> core.Message:
        parts = content_parts(self.content)
        return core.Message(core.Role.TOOL, parts, name=self.name, tool_call_id=self.tool_call_id)


class FunctionMessage(reading.Wire):
    """The output of a tool in the deprecated form."""

    name: reading.Identifier
    content: Content | None = None

    def to_core(self) -> core.Message:
        parts = content_parts(self.content)
        return core.Message(core.Role.TOOL, parts, name=self.name, tool_call_id=self.name)


class UnknownMessage(reading.Wire):
    """Never valid. The error lists the roles."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]

    def to_core(self) -> core.Message:
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
        raise reading.invalid("is of another service, which alone can read it: leave this item out")
    encoded = packed.removeprefix(_PACKED_PREFIX)
    try:
        return base64.b64decode(encoded, altchars=b"-_", validate=True).decode()
    except ValueError:
        raise reading.invalid("was changed: send it back unchanged") from None
