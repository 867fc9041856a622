"""The items of `input`, and how they become turns of a conversation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from serving.core.request import Message, Role, ToolCall
from serving.protocols.messages import (
    Content,
    WireFunctionCall,
    WireMessage,
    content_parts,
)
from serving.protocols.reading import Wire, invalid, missing, unsupported


class FunctionCall(WireFunctionCall):
    """A replayed call."""

    call_id: str | None = None
    id: str | None = None

    @model_validator(mode="after")
    def _has_an_id(self) -> FunctionCall:
        if self.call_id is None and self.id is None:
            raise missing("must have a `call_id`")
        return self

    def to_call(self) -> ToolCall:
        return self.to_core(self.call_id or self.id or "")


class FunctionCallOutput(Wire):
    """What the client's function returned."""

    call_id: str
    output: Content

    def to_core(self) -> Message:
        return Message(Role.TOOL, content_parts(self.output), tool_call_id=self.call_id)


class ReasoningText(Wire):
    """A part of a replayed thought."""

    text: str


class Reasoning(Wire):
    """A replayed thought. Without readable text, it is as if it were not there."""

    summary: list[ReasoningText] | None = None
    content: list[ReasoningText] | None = None

    @property
    def text(self) -> str:
        """The content, or else the summary: this server's items hold the same in both."""
        return "\n".join(part.text for part in self.content or self.summary or ())


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
        raise unsupported(
            f"is of type {kind[:64]}, which is not supported: send messages, function_call, "
            "function_call_output and reasoning items"
        )


def _tag(value: Any) -> str:
    match value:
        case {"type": "function_call" | "function_call_output" | "reasoning" as kind}:
            return f"<{kind}>"
        case {"type": "message"}:
            return "<message>"
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
    | Annotated[FunctionCall, Tag("<function_call>")]
    | Annotated[FunctionCallOutput, Tag("<function_call_output>")]
    | Annotated[Reasoning, Tag("<reasoning>")]
    | Annotated[OtherItem, Tag("<other>")],
    Discriminator(_tag),
]


def _as_items(value: object) -> object:
    if isinstance(value, str) and value:
        return [{"role": "user", "content": value}]
    if isinstance(value, str | list) and not value:
        raise invalid("must not be empty")
    if not isinstance(value, list):
        raise invalid("must be a string or an array of items")
    return value


Input = Annotated[list[InputItem], Field(fail_fast=True), BeforeValidator(_as_items)]


def turns(items: Sequence[InputItem]) -> tuple[Message, ...]:
    """The conversation that `items` tell.

    Calls join the assistant's turn before them, and thoughts the one after them.
    """
    told = _Turns()
    for item in items:
        told.add(item)
    return told.all()


class _Turns:
    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._thoughts: list[str] = []

    def add(self, item: InputItem) -> None:
        match item:
            case Reasoning():
                self._thoughts += [item.text] if item.text else []
            case FunctionCall():
                self._call(item.to_call())
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
