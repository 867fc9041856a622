"""The values conversations are made of: messages, exchanges and whole conversations."""

from dataclasses import dataclass
from typing import Any

from training.functions import Function, Json

Message = dict[str, Any]


@dataclass(frozen=True)
class Exchange:
    """One question and its answer, with whatever lies between them.

    `messages` ends with the assistant's answer. `thought` is what the assistant thinks before
    that last answer when reasoning is on. `system` is a system prompt the answer depends on.
    `functions` must be offered for the calls to make sense; where `is_toolless`, none may be.
    """

    kind: str
    messages: tuple[Message, ...]
    thought: str
    system: str = ""
    functions: tuple[Function, ...] = ()
    is_toolless: bool = False


@dataclass(frozen=True)
class Conversation:
    """A prompt with its expected answer: the last message is what the model should say.

    `thought` is None when reasoning is off.
    """

    kind: str
    messages: tuple[Message, ...]
    tools: tuple[Json, ...] | None = None
    thought: str | None = None

    @property
    def prompt(self) -> tuple[Message, ...]:
        """Everything before the answer."""
        return self.messages[:-1]

    @property
    def answer(self) -> Message:
        """What the assistant should say or call."""
        return self.messages[-1]


def user(text: str) -> Message:
    """A message of the user."""
    return {"role": "user", "content": text}


def assistant(text: str, *calls: Json) -> Message:
    """A message of the assistant, with its tool calls if it made any."""
    if calls:
        return {"role": "assistant", "content": text, "tool_calls": list(calls)}
    return {"role": "assistant", "content": text}
