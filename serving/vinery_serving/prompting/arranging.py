"""Arranges the messages of a conversation as a template renders them (see `capabilities`).

Clients send instructions, calls and reasoning in any order and number. Many templates drop
unexpected messages, or raise.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Final

from vinery_serving.core.request import ContentPart, Message, Role, TextPart, ToolCall
from vinery_serving.prompting.capabilities import TemplateCapabilities

_INSTRUCTING: Final = (Role.SYSTEM, Role.DEVELOPER)


def arranged(messages: Sequence[Message], capabilities: TemplateCapabilities) -> Sequence[Message]:
    messages = _with_instructions(messages, capabilities)
    if capabilities.wants_single_calls:
        messages = _with_single_calls(messages)
    if capabilities.refuses_text_beside_reasoning:
        messages = [_without_text_beside_reasoning(message) for message in messages]
    return _with_numbered_calls(messages) if capabilities.wants_numbered_ids else messages


def _with_instructions(
    messages: Sequence[Message], capabilities: TemplateCapabilities
) -> Sequence[Message]:
    """The messages with system and developer messages where the template renders them. OpenAI's
    clients may send any number of such messages anywhere. Many templates render one, at the start.
    Some render none: their models were trained to read instructions in the first user message."""
    known = [_known(message, capabilities) for message in messages]
    has_late_ones = any(message.role in _INSTRUCTING for message in messages[1:])
    if capabilities.has_system and (capabilities.has_many_systems or not has_late_ones):
        return known
    instructions = [message for message in known if message.role in _INSTRUCTING]
    if not instructions:
        return known
    others = [message for message in known if message.role not in _INSTRUCTING]
    first = instructions[0]
    if capabilities.has_system:
        return [_with_text(first, instructions), *others]
    for at, question in enumerate(others):
        if question.role is Role.USER:
            whole = _with_text(question, [*instructions, question])
            return [*others[:at], whole, *others[at + 1 :]]
    return [_with_text(replace(first, role=Role.USER), instructions), *others]


def _with_single_calls(messages: Sequence[Message]) -> list[Message]:
    """The same messages, with a turn for each call. The results of a call follow its turn."""
    groups: list[list[Message]] = []  # each message with the results after it
    for message in messages:
        if groups and message.role is Role.TOOL:
            groups[-1].append(message)
        else:
            groups.append([message])
    return [message for turn, *results in groups for message in _split(turn, results)]


def _split(turn: Message, results: Sequence[Message]) -> list[Message]:
    if len(turn.tool_calls) < 2:
        return [turn, *results]
    first, *others = turn.tool_calls
    turns = [[replace(turn, tool_calls=(first,))]]
    turns += [[Message(turn.role, tool_calls=(call,))] for call in others]
    positions = {call.id: at for at, call in enumerate(turn.tool_calls)}
    for result in results:
        # A result without a call stays behind all calls.
        turns[positions.get(result.tool_call_id or "", -1)].append(result)
    return [message for each in turns for message in each]


def _with_numbered_calls(messages: Sequence[Message]) -> list[Message]:
    """The same messages, with the numbers of all calls in their ids. A result answers the newest
    call of its id, since some clients start again in each turn."""
    numbers, known = count(), dict[str | None, str]()

    def numbered(call: ToolCall) -> ToolCall:
        known[call.id] = f"functions.{call.name}:{next(numbers)}"
        return replace(call, id=known[call.id])

    return [
        replace(
            message,
            tool_calls=tuple(map(numbered, message.tool_calls)),
            tool_call_id=known.get(message.tool_call_id, message.tool_call_id),
        )
        for message in messages
    ]


def _without_text_beside_reasoning(message: Message) -> Message:
    """A turn with calls, whose text is a part of its reasoning."""
    if not (message.tool_calls and message.reasoning and message.text):
        return message
    return replace(message, content=message.media, reasoning=f"{message.reasoning}\n{message.text}")


def _known(message: Message, capabilities: TemplateCapabilities) -> Message:
    if message.role is Role.DEVELOPER and not capabilities.has_developer:
        return replace(message, role=Role.SYSTEM)
    return message


def _with_text(message: Message, sources: Sequence[Message]) -> Message:
    if any(source.media for source in sources):
        return replace(message, content=tuple(_joined(sources)))
    text = "\n\n".join(source.text for source in sources if source.text)
    return replace(message, content=(TextPart(text),))


def _joined(sources: Sequence[Message]) -> list[ContentPart]:
    parts: list[ContentPart] = []
    for source in sources:
        if parts and isinstance(last := parts[-1], TextPart):
            parts[-1] = TextPart(f"{last.text}\n\n")
        parts += source.content
    return parts
