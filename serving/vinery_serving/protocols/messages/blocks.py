"""The turns and content blocks of a Messages request, and their conversion to messages.

A block becomes parts of a message, a tool call, or reasoning; the result of a tool a message.
Consecutive turns of one role are one turn, as in Anthropic's API.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar, get_args

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from vinery_serving.core import field_limits
from vinery_serving.core.media import MediaKind, MediaPart, MediaSource
from vinery_serving.core.request import ContentPart, Message, Role, TextPart, ToolCall
from vinery_serving.protocols.common.encoding import json_bytes
from vinery_serving.protocols.common.messages import FileData, Filename, OrText, Source
from vinery_serving.protocols.common.reading import (
    Identifier,
    Limited,
    Text,
    Wire,
    limited_json,
    refusal,
)

_FAILED: Final = TextPart("Error:")  # the model has no other sign that a tool failed


class _ByType:
    """Annotation of a union of models that differ by `type`. The error of another block or source
    lists the types."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        blocks = get_args(source)
        kinds = {get_args(each.model_fields["type"].annotation)[0]: each for each in blocks}
        return core_schema.tagged_union_schema(
            {f"<type={kind}>": handler.generate_schema(each) for kind, each in kinds.items()},
            lambda value: f"<type={value.get('type')}>" if isinstance(value, dict) else None,
            custom_error_type="invalid",
            custom_error_message=f"must have one of these types: {', '.join(kinds)}",
        )


class TextBlock(Wire):
    """A text. The citations of an earlier answer are not sent to the model."""

    type: Literal["text"]
    text: Text

    def parts(self, path: str) -> tuple[ContentPart, ...]:
        """`path` is the path of the block."""
        return (TextPart(self.text),)


class Base64Source(Wire):
    """The file itself. The bytes show the type, whatever the `media_type`."""

    type: Literal["base64"]
    data: FileData
    media_type: Identifier | None = None

    def source(self, path: str) -> tuple[MediaSource, str]:
        """Return the source, and the path of the field that has it."""
        return self.data, f"{path}.data"


class UrlSource(Wire):
    """A URL that the media rules allow, or a data URL."""

    type: Literal["url"]
    url: Source

    def source(self, path: str) -> tuple[MediaSource, str]:
        return self.url, f"{path}.url"


class PlainText(Wire):
    """The text of a document."""

    type: Literal["text"]
    data: Text
    media_type: Identifier | None = None


ImageSource = Annotated[Base64Source | UrlSource, _ByType()]


class Transformations(Wire):
    """`transformations` of a picture. One that is too large is scaled down."""

    oversized_image: Literal["downsize"] | None = None


class ImageBlock(Wire):
    """A picture."""

    type: Literal["image"]
    source: ImageSource
    transformations: Transformations | None = None

    def parts(self, path: str) -> tuple[ContentPart, ...]:
        source, param = self.source.source(f"{path}.source")
        return (MediaPart(MediaKind.IMAGE, source, param),)


SimpleBlock = Annotated[TextBlock | ImageBlock, _ByType()]
_BlockT = TypeVar("_BlockT")
_ListOf = Annotated[
    list[_BlockT], Field(fail_fast=True), OrText("content blocks"), Limited(field_limits.PARTS)
]


class ContentSource(Wire):
    """A document of blocks."""

    type: Literal["content"]
    content: _ListOf[SimpleBlock]


DocumentSource = Annotated[Base64Source | UrlSource | PlainText | ContentSource, _ByType()]


class Citations(Wire):
    """`citations` of a document. Answers have none."""

    enabled: Literal[False] | None = None


class DocumentBlock(Wire):
    """A PDF file, a picture, or a text. The context, and the title of a text, become texts before
    the document; the title of a file is the filename."""

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
                inner = _content_parts(blocks, f"{path}.content")
                return (*self._heads(self.title, self.context), *inner)
            case Base64Source() | UrlSource() as file:
                source, param = file.source(path)
                part = MediaPart(MediaKind.DOCUMENT, source, param, filename=self.title)
                return (*self._heads(self.context), part)

    def _heads(self, *texts: str | None) -> tuple[TextPart, ...]:
        return tuple(TextPart(text) for text in texts if text)


class SearchResultBlock(Wire):
    """A result of the client's own search: title and source as one text, then the texts."""

    type: Literal["search_result"]
    title: Text
    source: Text
    content: Annotated[list[TextBlock], Field(fail_fast=True), Limited(field_limits.PARTS)]
    citations: Citations | None = None

    def parts(self, path: str) -> tuple[ContentPart, ...]:
        head = TextPart(f"{self.title}\nSource: {self.source}")
        return (head, *(TextPart(block.text) for block in self.content))


InnerBlock = Annotated[TextBlock | ImageBlock | DocumentBlock | SearchResultBlock, _ByType()]


class ToolResultBlock(Wire):
    """The result of a tool. A failed result begins with `Error:`."""

    type: Literal["tool_result"]
    tool_use_id: Identifier
    content: _ListOf[InnerBlock] | None = None
    is_error: bool | None = None

    def to_core(self, path: str) -> Message:
        parts = _content_parts(self.content or (), f"{path}.content")
        head = (_FAILED,) if self.is_error else ()
        return Message(Role.TOOL, (*head, *parts), tool_call_id=self.tool_use_id)


class ToolUseBlock(Wire):
    """An earlier call of a tool."""

    type: Literal["tool_use"]
    id: Identifier
    name: Identifier
    input: Annotated[dict[str, Any], limited_json(field_limits.ARGUMENTS)]

    def to_core(self) -> ToolCall:
        return ToolCall(self.id, self.name, json_bytes(self.input).decode())


class ThinkingBlock(Wire):
    """Earlier reasoning. This server reads no signature."""

    type: Literal["thinking"]
    thinking: Text
    signature: Text | None = None


class RedactedThinkingBlock(Wire):
    """Encrypted reasoning of another server. The prompt leaves it out."""

    type: Literal["redacted_thinking"]
    data: Text | None = None


Block = Annotated[
    TextBlock
    | ImageBlock
    | DocumentBlock
    | SearchResultBlock
    | ToolUseBlock
    | ToolResultBlock
    | ThinkingBlock
    | RedactedThinkingBlock,
    _ByType(),
]
Blocks = _ListOf[Block]
TextBlocks = _ListOf[TextBlock]


def _content_parts(blocks: Sequence[Any], path: str) -> Iterator[ContentPart]:
    """Yield the parts of blocks without calls; the validators refuse other blocks."""
    for at, block in enumerate(blocks):
        assert isinstance(block, TextBlock | ImageBlock | DocumentBlock | SearchResultBlock)
        yield from block.parts(f"{path}[{at}]")


class Turn(Wire):
    """A message of the user or the assistant, or an instruction between them."""

    role: Literal["user", "assistant", "system"]
    content: Blocks
    clear_at: Literal["never"] | None = None
    output_config: None = None


Turns = Annotated[list[Turn], Field(min_length=1, fail_fast=True), Limited(field_limits.MESSAGES)]


class _Placed(NamedTuple):
    path: str
    block: Block


def messages_of(turns: Sequence[Turn]) -> tuple[Message, ...]:
    """Return `turns` as the messages of a conversation. Raises `InvalidRequest` for blocks in a
    turn of the wrong role."""
    found: list[Message] = []
    for role, group in groupby(enumerate(turns), key=lambda numbered: numbered[1].role):
        placed = [
            _Placed(f"messages[{at}].content[{number}]", block)
            for at, turn in group
            for number, block in enumerate(turn.content)
        ]
        if role == "assistant":
            found.append(_answer(placed))
        else:
            found += _questions(Role(role), placed)
    return tuple(found)


def _questions(role: Role, placed: Sequence[_Placed]) -> Iterator[Message]:
    """Yield a message for each result of a tool, and for the blocks between and after results."""
    parts: list[ContentPart] = []
    for path, block in placed:
        match block:
            case TextBlock() | ImageBlock() | DocumentBlock() | SearchResultBlock():
                parts += block.parts(path)
            case ToolResultBlock() if role is Role.USER:
                if parts:
                    yield Message(role, tuple(parts))
                    parts = []
                yield block.to_core(path)
            case _:
                raise _misplaced(path, block, role)
    if parts or not placed:
        yield Message(role, tuple(parts))


def _answer(placed: Sequence[_Placed]) -> Message:
    parts: list[ContentPart] = []
    reasoning: list[str] = []
    calls: list[ToolCall] = []
    for path, block in placed:
        match block:
            case TextBlock() | ImageBlock() | DocumentBlock() | SearchResultBlock():
                parts += block.parts(path)
            case ThinkingBlock():
                reasoning.append(block.thinking)
            case RedactedThinkingBlock():
                pass
            case ToolUseBlock():
                calls.append(block.to_core())
            case _:
                raise _misplaced(path, block, Role.ASSISTANT)
    text = "\n".join(reasoning) or None
    return Message(Role.ASSISTANT, tuple(parts), reasoning=text, tool_calls=tuple(calls))


def _misplaced(path: str, block: object, role: Role) -> Exception:
    kind = getattr(block, "type", "")
    return refusal(path, f"is of type {kind}, which has no meaning in a message of the {role}")


def system_messages(blocks: Sequence[TextBlock] | None) -> tuple[Message, ...]:
    parts = tuple(TextPart(block.text) for block in blocks or ())
    return (Message(Role.SYSTEM, parts),) if parts else ()
