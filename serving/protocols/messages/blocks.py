"""The content blocks of a Messages request.

A block becomes parts of a message, a tool call, reasoning, or a message of its own: the result of
a tool. `cache_control` needs nothing: the prefix cache finds equal starts of prompts itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from vinery_serving.core import field_limits
from vinery_serving.core.media import MediaKind, MediaPart, MediaSource
from vinery_serving.core.request import ContentPart, Message, Role, TextPart, ToolCall
from vinery_serving.protocols.common.encoding import json_bytes
from vinery_serving.protocols.common.limited import (
    TEXT_LIMIT,
    Identifier,
    Limited,
    LimitedJson,
    Text,
)
from vinery_serving.protocols.common.media import FileData, Filename, Source
from vinery_serving.protocols.common.reading import (
    Wire,
    invalid,
    missing,
    refuse_if,
    unsupported,
)

_NO_FILES: Final = (
    "names a stored file, but this server stores none: send its contents as `base64`, or its `url`"
)
_TYPES: Final = (
    "text", "image", "document", "tool_use", "tool_result", "thinking", "redacted_thinking",
)  # fmt: skip
_INNER_TYPES: Final = ("text", "image", "document")
# The model has no other sign that a tool failed.
_FAILED: Final = TextPart("Error:")


class TextBlock(Wire):
    """A text."""

    type: Literal["text"]
    text: Text

    def parts(self, path: str) -> tuple[ContentPart, ...]:
        """Return the parts of a message; `path` is that of the block."""
        return (TextPart(self.text),)


class Base64Source(Wire):
    """The file itself. Its bytes show what it is, whatever the `media_type`."""

    data: FileData
    media_type: Identifier | None = None

    def source(self, path: str) -> tuple[MediaSource, str]:
        """Return the source, and the path of the field that has it."""
        return self.data, f"{path}.data"


class UrlSource(Wire):
    """A URL that the media rules allow, or a data URL."""

    url: Source

    def source(self, path: str) -> tuple[MediaSource, str]:
        return self.url, f"{path}.url"


class PlainText(Wire):
    """The text of a document."""

    data: Text


class StoredFile(Wire):
    """Never valid: the server stores no files."""

    @model_validator(mode="before")
    @classmethod
    def _refuse(cls, value: Any) -> None:
        raise unsupported(_NO_FILES)


class OtherSource(Wire):
    """Never valid. Its error lists the types."""

    type: Literal["base64", "url"]


class OtherDocumentSource(Wire):
    """Never valid. Its error lists the types."""

    type: Literal["base64", "url", "text", "content"]


def _by_type(*types: str) -> Discriminator:
    """Choose the member of a union by the field `type`."""

    def tag_of(value: Any) -> str:
        kind = value.get("type") if isinstance(value, dict) else None
        return f"<type={kind}>" if kind in types else "<other>"

    return Discriminator(tag_of)


ImageSource = Annotated[
    Annotated[Base64Source, Tag("<type=base64>")]
    | Annotated[UrlSource, Tag("<type=url>")]
    | Annotated[StoredFile, Tag("<type=file>")]
    | Annotated[OtherSource, Tag("<other>")],
    _by_type("base64", "url", "file"),
]


class ImageBlock(Wire):
    """A picture."""

    type: Literal["image"]
    source: ImageSource

    def parts(self, path: str) -> tuple[ContentPart, ...]:
        assert isinstance(self.source, Base64Source | UrlSource)
        source, param = self.source.source(f"{path}.source")
        return (MediaPart(MediaKind.IMAGE, source, param),)


def _as_blocks(value: object) -> object:
    if isinstance(value, str):
        return [{"type": "text", "text": TEXT_LIMIT.check(value)}]
    if isinstance(value, list):
        return value
    raise invalid("must be a string or an array of content blocks")


class OtherSimpleBlock(Wire):
    """Never valid. Its error lists the types."""

    type: Literal["text", "image"]


SimpleBlock = Annotated[
    Annotated[TextBlock, Tag("<type=text>")]
    | Annotated[ImageBlock, Tag("<type=image>")]
    | Annotated[OtherSimpleBlock, Tag("<other>")],
    _by_type("text", "image"),
]
_SimpleBlocks = Annotated[
    list[SimpleBlock],
    Field(fail_fast=True),
    BeforeValidator(_as_blocks, json_schema_input_type=Text | list[SimpleBlock]),
    Limited(field_limits.PARTS),
]


class ContentSource(Wire):
    """A document of blocks."""

    content: _SimpleBlocks


DocumentSource = Annotated[
    Annotated[Base64Source, Tag("<type=base64>")]
    | Annotated[UrlSource, Tag("<type=url>")]
    | Annotated[StoredFile, Tag("<type=file>")]
    | Annotated[PlainText, Tag("<type=text>")]
    | Annotated[ContentSource, Tag("<type=content>")]
    | Annotated[OtherDocumentSource, Tag("<other>")],
    _by_type("base64", "url", "file", "text", "content"),
]


class Citations(Wire):
    """`citations` of a document."""

    enabled: (
        Annotated[
            bool,
            BeforeValidator(
                refuse_if(lambda value: value is True, "must be false: answers have no citations"),
                json_schema_input_type=Literal[False],
            ),
        ]
        | None
    ) = None


class DocumentBlock(Wire):
    """A PDF file, a picture, or a text. Its title and context are texts before it."""

    type: Literal["document"]
    source: DocumentSource
    title: Filename | None = None
    context: Text | None = None
    citations: Citations | None = None

    def parts(self, path: str) -> tuple[ContentPart, ...]:
        path = f"{path}.source"
        match self.source:
            case PlainText(data=text):
                return (*self._heads(self.title, self.context), TextPart(text))
            case ContentSource(content=blocks):
                inner = _parts_of(blocks, f"{path}.content")
                return (*self._heads(self.title, self.context), *inner)
            case Base64Source() | UrlSource() as file:
                source, param = file.source(path)
                part = MediaPart(MediaKind.DOCUMENT, source, param, filename=self.title)
                return (*self._heads(self.context), part)
        raise AssertionError("the validator refuses all other sources")

    def _heads(self, *texts: str | None) -> tuple[TextPart, ...]:
        return tuple(TextPart(text) for text in texts if text)


class OtherInnerBlock(Wire):
    """Never valid. Its error lists the types."""

    type: Literal["text", "image", "document"]


InnerBlock = Annotated[
    Annotated[TextBlock, Tag("<type=text>")]
    | Annotated[ImageBlock, Tag("<type=image>")]
    | Annotated[DocumentBlock, Tag("<type=document>")]
    | Annotated[OtherInnerBlock, Tag("<other>")],
    _by_type(*_INNER_TYPES),
]
_InnerBlocks = Annotated[
    list[InnerBlock],
    Field(fail_fast=True),
    BeforeValidator(_as_blocks, json_schema_input_type=Text | list[InnerBlock]),
    Limited(field_limits.PARTS),
]


class ToolResultBlock(Wire):
    """The result of a tool. A failed one begins with `Error:`."""

    type: Literal["tool_result"]
    tool_use_id: Identifier
    content: _InnerBlocks | None = None
    is_error: bool | None = None

    def to_core(self, path: str) -> Message:
        parts = _parts_of(self.content or (), f"{path}.content")
        head = (_FAILED,) if self.is_error else ()
        return Message(Role.TOOL, (*head, *parts), tool_call_id=self.tool_use_id)


_Input = Annotated[dict[str, Any], LimitedJson((field_limits.ARGUMENTS,))]


class ToolUseBlock(Wire):
    """An earlier call of a tool."""

    type: Literal["tool_use"]
    id: Identifier
    name: Identifier
    input: _Input

    def to_core(self) -> ToolCall:
        return ToolCall(self.id, self.name, json_bytes(self.input).decode())


class ThinkingBlock(Wire):
    """Earlier reasoning. Its signature has no meaning here."""

    type: Literal["thinking"]
    thinking: Text


class RedactedThinkingBlock(Wire):
    """Reasoning that only the server which wrote it can read. It is left out."""

    type: Literal["redacted_thinking"]


class OtherBlock(Wire):
    """Never valid. Its error lists the types."""

    @model_validator(mode="before")
    @classmethod
    def _refuse(cls, value: Any) -> None:
        if isinstance(value, Mapping) and value.get("type") is None:
            raise missing("must have a `type`")
        raise invalid(f"must have one of these types: {', '.join(_TYPES)}")


Block = Annotated[
    Annotated[TextBlock, Tag("<type=text>")]
    | Annotated[ImageBlock, Tag("<type=image>")]
    | Annotated[DocumentBlock, Tag("<type=document>")]
    | Annotated[ToolUseBlock, Tag("<type=tool_use>")]
    | Annotated[ToolResultBlock, Tag("<type=tool_result>")]
    | Annotated[ThinkingBlock, Tag("<type=thinking>")]
    | Annotated[RedactedThinkingBlock, Tag("<type=redacted_thinking>")]
    | Annotated[OtherBlock, Tag("<other>")],
    _by_type(*_TYPES),
]
Blocks = Annotated[
    list[Block],
    Field(fail_fast=True),
    BeforeValidator(_as_blocks, json_schema_input_type=Text | list[Block]),
    Limited(field_limits.PARTS),
]
TextBlocks = Annotated[
    list[TextBlock],
    Field(fail_fast=True),
    BeforeValidator(_as_blocks, json_schema_input_type=Text | list[TextBlock]),
    Limited(field_limits.PARTS),
]


def _parts_of(blocks: Sequence[Any], path: str) -> Iterator[ContentPart]:
    """The parts of blocks that have no calls; the validators refuse all others."""
    for at, block in enumerate(blocks):
        assert isinstance(block, TextBlock | ImageBlock | DocumentBlock)
        yield from block.parts(f"{path}[{at}]")
