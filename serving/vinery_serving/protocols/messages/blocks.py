"""The content blocks of a Messages request.

A block becomes parts of a message, a tool call, reasoning, or a message of its own: the result of
a tool.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

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
    refusing,
    unsupported,
)
from vinery_serving.protocols.messages.members import Reported, wrong_type

_NO_FILES: Final = (
    "names a stored file, but this server stores none: send its contents as `base64`, or its `url`"
)
_SIMPLE_TYPES: Final = ("text", "image")
_INNER_TYPES: Final = (*_SIMPLE_TYPES, "document", "search_result")
_TYPES: Final = (*_INNER_TYPES, "tool_use", "tool_result", "thinking", "redacted_thinking")
# The model has no other sign that a tool failed.
_FAILED: Final = TextPart("Error:")


class TextBlock(Reported):
    """A text. The citations of an earlier answer are not sent to the model."""

    harmless: ClassVar = Reported.harmless | {"citations"}

    type: Literal["text"]
    text: Text

    def parts(self, path: str) -> tuple[ContentPart, ...]:
        """Return the parts of a message; `path` is that of the block."""
        return (TextPart(self.text),)


class Base64Source(Reported):
    """The file itself. Its bytes show what it is, whatever the `media_type`."""

    type: Literal["base64"]
    data: FileData
    media_type: Identifier | None = None

    def source(self, path: str) -> tuple[MediaSource, str]:
        """Return the source, and the path of the field that has it."""
        return self.data, f"{path}.data"


class UrlSource(Reported):
    """A URL that the media rules allow, or a data URL."""

    type: Literal["url"]
    url: Source

    def source(self, path: str) -> tuple[MediaSource, str]:
        return self.url, f"{path}.url"


class PlainText(Reported):
    """The text of a document."""

    type: Literal["text"]
    data: Text
    media_type: Identifier | None = None


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


class Transformations(Reported):
    """`transformations` of a picture."""

    oversized_image: (
        Annotated[
            Literal["downsize"],
            refusing(
                lambda value: value == "error",
                "must be downsize: a picture that is too large is scaled down",
                Literal["downsize"],
            ),
        ]
        | None
    ) = None


class ImageBlock(Reported):
    """A picture."""

    type: Literal["image"]
    source: ImageSource
    transformations: Transformations | None = None

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


class OtherBlock(Wire):
    """Never valid. Its error names the type, or lists those that may be here."""

    types: ClassVar[tuple[str, ...]] = _TYPES

    @model_validator(mode="before")
    @classmethod
    def _refuse(cls, value: Any) -> None:
        raise wrong_type(value, cls.types)


class OtherSimpleBlock(OtherBlock):
    types: ClassVar[tuple[str, ...]] = _SIMPLE_TYPES


SimpleBlock = Annotated[
    Annotated[TextBlock, Tag("<type=text>")]
    | Annotated[ImageBlock, Tag("<type=image>")]
    | Annotated[OtherSimpleBlock, Tag("<other>")],
    _by_type(*_SIMPLE_TYPES),
]
_SimpleBlocks = Annotated[
    list[SimpleBlock],
    Field(fail_fast=True),
    BeforeValidator(_as_blocks, json_schema_input_type=Text | list[SimpleBlock]),
    Limited(field_limits.PARTS),
]


class ContentSource(Reported):
    """A document of blocks."""

    type: Literal["content"]
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


class Citations(Reported):
    """`citations` of a document."""

    enabled: (
        Annotated[
            bool,
            refusing(
                lambda value: value is True,
                "must be false: answers have no citations",
                Literal[False],
            ),
        ]
        | None
    ) = None


class DocumentBlock(Reported):
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


class SearchResultBlock(Reported):
    """A result of the client's own search: its title and source, and its texts after them."""

    type: Literal["search_result"]
    title: Text
    source: Text
    content: Annotated[list[TextBlock], Field(fail_fast=True), Limited(field_limits.PARTS)]
    citations: Citations | None = None

    def parts(self, path: str) -> tuple[ContentPart, ...]:
        head = TextPart(f"{self.title}\nSource: {self.source}")
        return (head, *(TextPart(block.text) for block in self.content))


class OtherInnerBlock(OtherBlock):
    types: ClassVar[tuple[str, ...]] = _INNER_TYPES


InnerBlock = Annotated[
    Annotated[TextBlock, Tag("<type=text>")]
    | Annotated[ImageBlock, Tag("<type=image>")]
    | Annotated[DocumentBlock, Tag("<type=document>")]
    | Annotated[SearchResultBlock, Tag("<type=search_result>")]
    | Annotated[OtherInnerBlock, Tag("<other>")],
    _by_type(*_INNER_TYPES),
]
_InnerBlocks = Annotated[
    list[InnerBlock],
    Field(fail_fast=True),
    BeforeValidator(_as_blocks, json_schema_input_type=Text | list[InnerBlock]),
    Limited(field_limits.PARTS),
]


class ToolResultBlock(Reported):
    """The result of a tool. A failed one begins with `Error:`."""

    harmless: ClassVar = Reported.harmless | {"toolset_name"}

    type: Literal["tool_result"]
    tool_use_id: Identifier
    content: _InnerBlocks | None = None
    is_error: bool | None = None

    def to_core(self, path: str) -> Message:
        parts = _parts_of(self.content or (), f"{path}.content")
        head = (_FAILED,) if self.is_error else ()
        return Message(Role.TOOL, (*head, *parts), tool_call_id=self.tool_use_id)


_Input = Annotated[dict[str, Any], LimitedJson((field_limits.ARGUMENTS,))]


class ToolUseBlock(Reported):
    """An earlier call of a tool."""

    harmless: ClassVar = Reported.harmless | {"caller", "toolset_name"}

    type: Literal["tool_use"]
    id: Identifier
    name: Identifier
    input: _Input

    def to_core(self) -> ToolCall:
        return ToolCall(self.id, self.name, json_bytes(self.input).decode())


class ThinkingBlock(Reported):
    """Earlier reasoning. Its signature has no meaning here."""

    type: Literal["thinking"]
    thinking: Text
    signature: Text | None = None


class RedactedThinkingBlock(Reported):
    """Reasoning that only the server which wrote it can read. It is left out."""

    is_left_out: ClassVar = True

    type: Literal["redacted_thinking"]
    data: Text | None = None


Block = Annotated[
    Annotated[TextBlock, Tag("<type=text>")]
    | Annotated[ImageBlock, Tag("<type=image>")]
    | Annotated[DocumentBlock, Tag("<type=document>")]
    | Annotated[SearchResultBlock, Tag("<type=search_result>")]
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
        assert isinstance(block, TextBlock | ImageBlock | DocumentBlock | SearchResultBlock)
        yield from block.parts(f"{path}[{at}]")
