"""The turns of a Messages request, and the messages that they become.

Consecutive turns of one role are one turn, as in Anthropic's API. The results of tools are blocks
of the user there, and messages of their own here.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from vinery_serving.core import field_limits
from vinery_serving.core.request import ContentPart, Message, Role, TextPart, ToolCall
from vinery_serving.protocols.common.limited import Limited
from vinery_serving.protocols.common.reading import only_null, refusal, refusing
from vinery_serving.protocols.messages.blocks import (
    Block,
    Blocks,
    DocumentBlock,
    ImageBlock,
    RedactedThinkingBlock,
    SearchResultBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from vinery_serving.protocols.messages.members import Reported


class Turn(Reported):
    """A message of the user or the assistant, or an instruction between them."""

    role: Literal["user", "assistant", "system"]
    content: Blocks
    clear_at: Annotated[
        Literal["never"] | None,
        refusing(
            lambda value: value not in (None, "never"),
            "must be never: this server keeps no conversations. Leave the message out of later "
            "requests",
            Literal["never"] | None,
        ),
    ] = None
    output_config: Annotated[
        None,
        only_null(
            "is not supported by this server: an answer has the `output_config` of its request"
        ),
    ] = None


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
    """Yield the results of tools, and what comes between them and after them."""
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
    """The turn of the assistant as one message."""
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
    """Return the message of `system`, or none."""
    parts = tuple(TextPart(block.text) for block in blocks or ())
    return (Message(Role.SYSTEM, parts),) if parts else ()
