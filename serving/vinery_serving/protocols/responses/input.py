"""The items of `input`, and their conversion to messages.

Templates know only one kind of call: a name and a JSON object of arguments. So a call of any
other tool becomes such a call, and a call of a hosted tool becomes a call and a tool message.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Annotated, Any, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from vinery_serving.core import field_limits
from vinery_serving.core.errors import cited
from vinery_serving.core.request import Message, Role, TextPart, ToolCall, joined_questions
from vinery_serving.core.tools import qualified_name
from vinery_serving.protocols.common import reading
from vinery_serving.protocols.common.encoding import json_bytes
from vinery_serving.protocols.common.messages import (
    Content,
    WireCustomCall,
    WireFunctionCall,
    WireMessage,
    content_parts,
    unpack_reasoning,
)

_BEFORE_SUMMARY = "A summary of the conversation so far:\n\n"

# Items that cannot become text, and why.
_NO_TEXT: Mapping[str, str] = {
    "image_generation_call": "holds a generated image: send it as an input_image part of a message",
    "computer_call": "acts on a screen, which this server does not support",
    "computer_call_output": "holds an image of a screen: send it as an input_image part of a "
    "function's output",
}
_NOT_SUPPORTED = (
    "is not supported: send messages, reasoning, and calls of functions and tools with their "
    "outputs"
)

_ANY_JSON = reading.limited_json(field_limits.TEXT)
AnyJson = Annotated[Any, _ANY_JSON]
AnyList = Annotated[list[Any], _ANY_JSON]
Texts = Annotated[list[str], Field(fail_fast=True), _ANY_JSON]


class ReplayedCall(reading.Wire):
    """An earlier call, whose output is another item."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": ["call_id"]}, {"required": ["id"]}]}
    )

    call_id: reading.Identifier | None = None
    id: reading.Identifier | None = None

    @model_validator(mode="after")
    def _has_an_id(self) -> ReplayedCall:
        if self.call_id is None and self.id is None:
            raise reading.missing("must have a `call_id`")
        return self

    @abstractmethod
    def to_call(self) -> ToolCall:
        """Return the call as a call of a function."""

    @property
    def known_id(self) -> str:
        """The id in the output of the call."""
        return self.call_id or self.id or ""


class NamedCall(ReplayedCall):
    """A call of a tool that the client named, perhaps in a namespace."""

    namespace: reading.Identifier | None = None

    @abstractmethod
    def to_core(self, call_id: str) -> ToolCall: ...

    def to_call(self) -> ToolCall:
        call = self.to_core(self.known_id)
        return replace(call, name=qualified_name(self.namespace, call.name))


class FunctionCall(WireFunctionCall, NamedCall):
    """`function_call`."""


class CustomCall(WireCustomCall, NamedCall):
    """`custom_tool_call`: a call of a custom tool."""


class BuiltInCall(ReplayedCall):
    """`local_shell_call`, `shell_call` and `apply_patch_call`: the client runs these tools."""

    type: str
    action: reading.AnyObject | None = None
    operation: reading.AnyObject | None = None

    def to_call(self) -> ToolCall:
        arguments = self.action or self.operation or {}
        return ToolCall(self.known_id, self.type.removesuffix("_call"), _json(arguments))


class CallOutput(reading.Wire):
    """`function_call_output` and `custom_tool_call_output`."""

    call_id: reading.Identifier
    output: Content

    def to_core(self) -> Message:
        return Message(Role.TOOL, content_parts(self.output, "output"), tool_call_id=self.call_id)


class BuiltInOutput(reading.Wire):
    """The output of a `BuiltInCall`. That of `local_shell_call` has the call's id as `id`."""

    call_id: reading.Identifier | None = None
    id: reading.Identifier | None = None
    status: reading.Identifier | None = None
    output: AnyJson = None

    @property
    def known_id(self) -> str:
        return self.call_id or self.id or ""

    def to_core(self) -> Message:
        return _tool_message(self.known_id, _text(self.output) or self.status or "completed")


class HostedCall(reading.Wire):
    """A call of a tool that OpenAI or an MCP server runs, with its output in the same item:
    `web_search_call`, `file_search_call`, `code_interpreter_call` and `mcp_call`."""

    type: str
    id: reading.Identifier | None = None
    status: reading.Identifier | None = None
    # The arguments of each kind of call.
    name: reading.Identifier | None = None
    arguments: Annotated[str, reading.Limited(field_limits.ARGUMENTS)] | None = None
    action: reading.AnyObject | None = None
    queries: Texts | None = None
    code: reading.Text | None = None
    # The outputs. An `error` replaces the output.
    error: AnyJson = None
    output: reading.Text | None = None
    results: AnyList | None = None
    outputs: AnyList | None = None

    @property
    def _tool(self) -> str:
        return self.type.removesuffix("_call")

    @property
    def _known_id(self) -> str:
        """Some clients leave out the ids of hosted calls."""
        return self.id or self._tool

    def to_call(self) -> ToolCall:
        sent = {"queries": self.queries, "code": self.code}
        own = {name: value for name, value in sent.items() if value is not None}
        arguments = self.arguments or _json(self.action or own)
        return ToolCall(self._known_id, self.name or self._tool, arguments)

    def to_core(self) -> Message:
        error = {"error": self.error} if isinstance(self.error, dict | list) else self.error
        found = (error, self.output, self.results, self.outputs)
        text = _text(next((each for each in found if each is not None), None))
        return _tool_message(self._known_id, text or self.status or "completed")


class ReasoningText(reading.Wire):
    """A part of a reasoning item."""

    text: reading.Text


ReasoningTexts = Annotated[
    list[ReasoningText], Field(fail_fast=True), reading.Limited(field_limits.PARTS)
]


class Reasoning(reading.Wire):
    """Earlier reasoning. An item without readable text is left out."""

    summary: ReasoningTexts | None = None
    content: ReasoningTexts | None = None
    # Only content that this server wrote is readable.
    encrypted_content: Annotated[reading.Text, AfterValidator(unpack_reasoning)] | None = None

    @property
    def text(self) -> str:
        """In this server's items all three fields have the same text."""
        parts = self.content or self.summary
        if parts:
            return "\n".join(part.text for part in parts)
        return self.encrypted_content or ""


class ItemReference(reading.Wire):
    """`item_reference`: a stored item, which takes its place before the prompt is written."""

    id: reading.Identifier


class CompactionItem(reading.Wire):
    """`compaction`: takes the place of earlier items. The server opens it before the prompt is
    written."""

    encrypted_content: reading.Text


class CompactionTrigger(reading.Wire):
    """`compaction_trigger`: asks for a compaction of all before it, instead of an answer."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What an opened compaction tells the model. No system message: it may repeat tools' texts."""

    text: str

    def to_core(self) -> Message:
        return Message(Role.USER, (TextPart(_BEFORE_SUMMARY + self.text),), stays=True)


class OtherItem(reading.Wire):
    """Never valid. The error explains which items are supported."""

    @model_validator(mode="before")
    @classmethod
    def _refuse(cls, value: dict[str, Any]) -> None:
        kind = value.get("type")
        if not isinstance(kind, str):
            raise reading.missing("must have a `role` or a known `type`")
        why = _NO_TEXT.get(kind, _NOT_SUPPORTED)
        raise reading.unsupported(f"is of type {cited(kind[:64])}, which {why}")


def _tag(value: Any) -> str:
    match value:
        case {"type": "message"}:
            return "<message>"
        case {"type": str(kind)} if f"<type={kind}>" in _TAGS:
            return f"<type={kind}>"
        case {"type": kind} if kind is not None:
            return "<other>"
        case {"role": _}:
            return "<message>"
        case {"id": _}:
            return "<type=item_reference>"
        case {}:
            return "<other>"
        case _:
            return "<message>"


InputItem = Annotated[
    Annotated[WireMessage, Tag("<message>")]
    | Annotated[Reasoning, Tag("<type=reasoning>")]
    | Annotated[FunctionCall, Tag("<type=function_call>")]
    | Annotated[CallOutput, Tag("<type=function_call_output>")]
    | Annotated[CustomCall, Tag("<type=custom_tool_call>")]
    | Annotated[CallOutput, Tag("<type=custom_tool_call_output>")]
    | Annotated[BuiltInCall, Tag("<type=local_shell_call>")]
    | Annotated[BuiltInCall, Tag("<type=shell_call>")]
    | Annotated[BuiltInCall, Tag("<type=apply_patch_call>")]
    | Annotated[BuiltInOutput, Tag("<type=local_shell_call_output>")]
    | Annotated[BuiltInOutput, Tag("<type=shell_call_output>")]
    | Annotated[BuiltInOutput, Tag("<type=apply_patch_call_output>")]
    | Annotated[HostedCall, Tag("<type=web_search_call>")]
    | Annotated[HostedCall, Tag("<type=file_search_call>")]
    | Annotated[HostedCall, Tag("<type=code_interpreter_call>")]
    | Annotated[HostedCall, Tag("<type=mcp_call>")]
    | Annotated[ItemReference, Tag("<type=item_reference>")]
    | Annotated[CompactionItem, Tag("<type=compaction>")]
    | Annotated[CompactionTrigger, Tag("<type=compaction_trigger>")]
    | Annotated[OtherItem, Tag("<other>")],
    Discriminator(_tag),
]
_TAGS = frozenset(kind.__metadata__[-1].tag for kind in get_args(get_args(InputItem)[0]))


def _as_items(value: object) -> object:
    if isinstance(value, str) and value:
        return [{"role": "user", "content": reading.TEXT_LIMIT.check(value)}]
    if isinstance(value, str | list) and not value:
        raise reading.invalid("must not be empty")
    if not isinstance(value, list):
        raise reading.invalid("must be a string or an array of items")
    return value


_Text = Annotated[str, Field(min_length=1), reading.Limited(field_limits.TEXT)]
_Items = Annotated[list[InputItem], Field(min_length=1)]
Input = Annotated[
    list[InputItem],
    Field(fail_fast=True),
    BeforeValidator(_as_items, json_schema_input_type=_Text | _Items),
    reading.Limited(field_limits.INPUT_ITEMS),
]


def messages_of(items: Sequence[InputItem | Summary], num_recalled: int = 0) -> tuple[Message, ...]:
    """Return `items` as messages. The first `num_recalled` items are not of this request."""
    conversation = _Conversation()
    for at, item in enumerate(items):
        match item:
            case Reasoning():
                conversation.reasoning += [item.text] if item.text else []
            case ReplayedCall():
                conversation.add_call(item.to_call())
            case HostedCall():
                conversation.add_call(item.to_call())
                conversation.add_message(item.to_core())
            case OtherItem() | ItemReference() | CompactionItem() | CompactionTrigger():
                raise AssertionError("these were refused or replaced")
            case _:
                own = at - num_recalled
                path = f"input[{own}]" if own >= 0 else "previous_response_id"
                conversation.add_message(item.to_core().within(path))
    messages = conversation.messages()
    return joined_questions(messages) if any(each.stays for each in messages) else messages


@dataclass(slots=True)
class _Turn:
    """A message and the results of its calls. The assistant's turn may get more items."""

    parts: list[Message]
    reasoning: list[str] = field(default_factory=list)
    results: list[Message] = field(default_factory=list)

    @property
    def has_open_calls(self) -> bool:
        """Whether the next items of the assistant belong to this turn."""
        return not self.results and any(part.tool_calls for part in self.parts)

    def messages(self) -> list[Message]:
        thoughts = [*self.reasoning, *(part.reasoning for part in self.parts if part.reasoning)]
        whole = replace(
            self.parts[0],
            content=tuple(chain.from_iterable(part.content for part in self.parts)),
            reasoning="\n".join(thoughts) or None,
            tool_calls=tuple(chain.from_iterable(part.tool_calls for part in self.parts)),
        )
        return [whole, *self.results]


class _Conversation:
    """Collects messages, calls and reasoning in their order. Calls join the assistant message
    before them. A message after calls joins, too: otherwise templates would render it between calls
    and results. Results follow their calls. Reasoning joins the next message."""

    def __init__(self) -> None:
        self.reasoning: list[str] = []  # waits for its message
        self._turns: list[_Turn] = []
        self._callers: dict[str, _Turn] = {}  # by the id of the call

    def messages(self) -> tuple[Message, ...]:
        self._add_open_reasoning()
        return tuple(message for turn in self._turns for message in turn.messages())

    def add_message(self, message: Message) -> None:
        if message.role is Role.ASSISTANT:
            self._add_answer(message)
            return
        self._add_open_reasoning()
        caller = self._callers.get(message.tool_call_id or "")
        if message.role is Role.TOOL and caller is not None:
            caller.results.append(message)
        else:
            self._turns.append(_Turn([message]))

    def add_call(self, call: ToolCall) -> None:
        """A call also joins a message without calls, but not after reasoning."""
        last = self._turns[-1] if self._turns else None
        is_answer = last is not None and last.parts[0].role is Role.ASSISTANT and not last.results
        joins = is_answer and not self.reasoning
        self._add_answer(Message(Role.ASSISTANT, tool_calls=(call,)), joins=joins)

    def _add_answer(self, message: Message, *, joins: bool = False) -> None:
        if not (self._turns and (joins or self._turns[-1].has_open_calls)):
            if message.reasoning is not None:
                self._add_open_reasoning()
            self._turns.append(_Turn([]))
        turn = self._turns[-1]
        turn.parts.append(message)
        turn.reasoning += self.reasoning
        self.reasoning = []
        self._callers |= dict.fromkeys((call.id for call in message.tool_calls), turn)

    def _add_open_reasoning(self) -> None:
        """Reasoning without a next message joins the turn with open calls, or becomes a message."""
        if self.reasoning:
            self._add_answer(Message(Role.ASSISTANT))


def without_old_reasoning(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the conversation without reasoning before the last message of the user."""
    questions = [at for at, message in enumerate(messages) if message.role is Role.USER]
    begin = questions[-1] if questions else 0
    old = [
        replace(message, reasoning=None)
        for message in messages[:begin]
        if message.content or message.tool_calls or message.reasoning is None
    ]
    return (*old, *messages[begin:])


def _tool_message(call_id: str, text: str) -> Message:
    return Message(Role.TOOL, (TextPart(text),), tool_call_id=call_id)


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else _json(value)


def _json(value: object) -> str:
    return json_bytes(value).decode()
