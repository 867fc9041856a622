"""System and developer messages, put where the template takes them.

OpenAI's clients may send any number of them anywhere. Many templates take one, at the
start; some take none, and their models were taught to find instructions in the first
question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from serving.core.request import Message, Role, TextPart
from serving.prompting.traits import TemplateCapabilities

_INSTRUCTING = (Role.SYSTEM, Role.DEVELOPER)
_BETWEEN = "\n\n"

# A message and its place in the conversation that the client sent, for error messages.
Numbered = tuple[int, Message]


def placed(messages: Sequence[Message], traits: TemplateCapabilities) -> list[Numbered]:
    """The same conversation, in a form that loses no instruction in this template."""
    numbered = [(index, _known(message, traits)) for index, message in enumerate(messages)]
    if traits.has_system and (traits.has_many_systems or not _has_late_ones(messages)):
        return numbered
    instructions = [pair for pair in numbered if pair[1].role in _INSTRUCTING]
    if not instructions:
        return numbered
    others = [pair for pair in numbered if pair[1].role not in _INSTRUCTING]
    if not traits.has_system:
        return _inside_first_question(instructions, others)
    index, first = instructions[0]
    return [(index, _with_text(first, [message for _, message in instructions])), *others]


def _known(message: Message, traits: TemplateCapabilities) -> Message:
    if message.role is Role.DEVELOPER and not traits.has_developer:
        return replace(message, role=Role.SYSTEM)
    return message


def _has_late_ones(messages: Sequence[Message]) -> bool:
    return any(message.role in _INSTRUCTING for message in messages[1:])


def _inside_first_question(instructions: list[Numbered], others: list[Numbered]) -> list[Numbered]:
    texts = [message for _, message in instructions]
    for place, (index, message) in enumerate(others):
        if message.role is Role.USER:
            question = _with_text(message, [*texts, message])
            return [*others[:place], (index, question), *others[place + 1 :]]
    index, first = instructions[0]
    return [(index, _with_text(replace(first, role=Role.USER), texts)), *others]


def _with_text(message: Message, sources: Sequence[Message]) -> Message:
    text = _BETWEEN.join(source.text for source in sources if source.text)
    return replace(message, content=(TextPart(text),))
