"""The items of `input`, and how they become turns of a conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from serving.core.request import Message, Role, ToolCall
from serving.core.tools import qualified_name
from serving.protocols.messages import WireFunctionCall, WireMessage
from serving.protocols.reading import Wire, invalid, missing, unsupported
from serving.protocols.responses.thoughts import unpacked
from serving.protocols.responses.tool_items import (
    ApplyPatchCall,
    ApplyPatchOutput,
    CallOutput,
    CodeInterpreterCall,
    CustomCall,
    FileSearchCall,
    HostedCall,
    LocalShellCall,
    LocalShellOutput,
    McpCall,
    ReplayedCall,
    ShellCall,
    ShellOutput,
    WebSearchCall,
)

# What cannot be put into words, or only by the server that made it.
_UNSPEAKABLE: Mapping[str, str] = {
    "image_generation_call": "holds an image, but this model takes text only",
    "computer_call": "acts on a screen, but this model takes text only",
    "computer_call_output": "holds an image of a screen, but this model takes text only",
    "compaction": "can be read only by the server that made it: send the items themselves",
}
_NOT_SUPPORTED = (
    "is not supported: send messages, reasoning, and calls of functions and tools with their "
    "outputs"
)


class FunctionCall(WireFunctionCall, ReplayedCall):
    """A replayed call of a function."""

    namespace: str | None = None

    def to_call(self) -> ToolCall:
        return replace(self.to_core(self.known_id), name=qualified_name(self.namespace, self.name))


class ReasoningText(Wire):
    """A part of a replayed thought."""

    text: str


class Reasoning(Wire):
    """A replayed thought. Without readable text, it is as if it were not there."""

    summary: list[ReasoningText] | None = None
    content: list[ReasoningText] | None = None
    # Of this server's thoughts the text, of those of others nothing.
    encrypted_content: Annotated[str, AfterValidator(unpacked)] | None = None

    @property
    def text(self) -> str:
        """This server's items hold the same in all three places."""
        parts = self.content or self.summary
        if parts:
            return "\n".join(part.text for part in parts)
        return self.encrypted_content or ""


class OtherItem(Wire):
    """Never valid: it exists to say which types there are."""

    @model_validator(mode="before")
    @classmethod
    def _refuse(cls, value: dict[str, Any]) -> None:
        kind = value.get("type")
        if kind == "item_reference" or (kind is None and "id" in value):
            raise unsupported("is an item_reference, but no items are stored: send the item itself")
        if not isinstance(kind, str):
            raise missing("must have a `role`, or a `type` that says what it is")
        raise unsupported(f"is of type {kind[:64]}, which {_UNSPEAKABLE.get(kind, _NOT_SUPPORTED)}")


def _tag(value: Any) -> str:
    match value:
        case {"type": str(kind)} if f"<{kind}>" in _TAGS:
            return f"<{kind}>"
        case {"type": kind} if kind is not None:
            return "<other>"
        case {"role": _}:
            return "<message>"
        case {}:
            return "<other>"
        case _:
            return "<message>"


InputItem = Annotated[
    Annotated[WireMessage, Tag("<message>")]
    | Annotated[Reasoning, Tag("<reasoning>")]
    | Annotated[FunctionCall, Tag("<function_call>")]
    | Annotated[CallOutput, Tag("<function_call_output>")]
    | Annotated[CustomCall, Tag("<custom_tool_call>")]
    | Annotated[CallOutput, Tag("<custom_tool_call_output>")]
    | Annotated[LocalShellCall, Tag("<local_shell_call>")]
    | Annotated[LocalShellOutput, Tag("<local_shell_call_output>")]
    | Annotated[ShellCall, Tag("<shell_call>")]
    | Annotated[ShellOutput, Tag("<shell_call_output>")]
    | Annotated[ApplyPatchCall, Tag("<apply_patch_call>")]
    | Annotated[ApplyPatchOutput, Tag("<apply_patch_call_output>")]
    | Annotated[WebSearchCall, Tag("<web_search_call>")]
    | Annotated[FileSearchCall, Tag("<file_search_call>")]
    | Annotated[CodeInterpreterCall, Tag("<code_interpreter_call>")]
    | Annotated[McpCall, Tag("<mcp_call>")]
    | Annotated[OtherItem, Tag("<other>")],
    Discriminator(_tag),
]
_TAGS = frozenset(kind.__metadata__[-1].tag for kind in get_args(get_args(InputItem)[0]))


def _as_items(value: object) -> object:
    if isinstance(value, str) and value:
        return [{"role": "user", "content": value}]
    if isinstance(value, str | list) and not value:
        raise invalid("must not be empty")
    if not isinstance(value, list):
        raise invalid("must be a string or an array of items")
    return value


_Text = Annotated[str, Field(min_length=1)]
_Items = Annotated[list[InputItem], Field(min_length=1)]
Input = Annotated[
    list[InputItem],
    Field(fail_fast=True),
    BeforeValidator(_as_items, json_schema_input_type=_Text | _Items),
]


def turns(items: Sequence[InputItem]) -> tuple[Message, ...]:
    """The conversation that `items` tell.

    Calls join the assistant's turn before them, and thoughts the one after them.
    """
    told = _Turns()
    for item in items:
        told.add(item)
    return told.all()


def without_old_thoughts(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The conversation with the thoughts of the current turn only: of what came after the
    last question."""
    questions = [at for at, message in enumerate(messages) if message.role is Role.USER]
    begin = questions[-1] if questions else 0
    old = [replace(message, reasoning=None) for message in messages[:begin] if not _thinks(message)]
    return (*old, *messages[begin:])


def _thinks(message: Message) -> bool:
    """Whether the turn is a thought and nothing else."""
    return message.reasoning is not None and not message.content and not message.tool_calls


class _Turns:
    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._thoughts: list[str] = []

    def add(self, item: InputItem) -> None:
        match item:
            case Reasoning():
                self._thoughts += [item.text] if item.text else []
            case ReplayedCall():
                self._call(item.to_call())
            case HostedCall():
                self._call(item.to_call())
                self._say(item.to_core())
            case OtherItem():
                raise AssertionError("no other item passes its validator")
            case _:
                self._say(item.to_core())

    def all(self) -> tuple[Message, ...]:
        self._settle_thoughts()
        return tuple(self._messages)

    def _say(self, message: Message) -> None:
        if message.role is Role.ASSISTANT and message.reasoning is None:
            message = replace(message, reasoning=self._take_thoughts())
        self._settle_thoughts()
        self._messages.append(message)

    def _call(self, call: ToolCall) -> None:
        last = self._messages[-1] if self._messages else None
        if last is None or last.role is not Role.ASSISTANT or self._thoughts:
            last = Message(Role.ASSISTANT, reasoning=self._take_thoughts())
            self._messages.append(last)
        self._messages[-1] = replace(last, tool_calls=(*last.tool_calls, call))

    def _settle_thoughts(self) -> None:
        """Thoughts that no turn of the assistant follows are a turn of their own."""
        if self._thoughts:
            self._messages.append(Message(Role.ASSISTANT, reasoning=self._take_thoughts()))

    def _take_thoughts(self) -> str | None:
        thoughts = "\n".join(self._thoughts) or None
        self._thoughts = []
        return thoughts
