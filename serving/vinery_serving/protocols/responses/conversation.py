"""The messages of a conversation from the parts that a Responses request has as items."""

from collections.abc import Sequence
from dataclasses import replace

from vinery_serving.core.request import Message, Role, ToolCall


def without_old_reasoning(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the conversation without reasoning before the last message of the user."""
    questions = [at for at, message in enumerate(messages) if message.role is Role.USER]
    begin = questions[-1] if questions else 0
    old = [
        replace(message, reasoning=None)
        for message in messages[:begin]
        if not _is_reasoning(message)
    ]
    return (*old, *messages[begin:])


def _is_reasoning(message: Message) -> bool:
    """Whether the message has only reasoning."""
    return message.reasoning is not None and not message.content and not message.tool_calls


class _AssistantTurn:
    """A message of the assistant whose items still arrive, and the results of its calls."""

    def __init__(self, message: Message, reasoning: Sequence[str]) -> None:
        self._message = message
        self._reasoning = list(reasoning)
        self._later: list[Message] = []
        self.calls = list(message.tool_calls)
        self.results: list[Message] = []

    @property
    def has_open_calls(self) -> bool:
        """Whether all that the assistant sends next belongs to this turn, too."""
        return bool(self.calls) and not self.results

    def join(self, message: Message, reasoning: Sequence[str]) -> None:
        self._later.append(message)
        self._reasoning += reasoning
        self.calls += message.tool_calls

    def messages(self) -> list[Message]:
        texts = [part for each in (self._message, *self._later) for part in each.content]
        reasoning = [each.reasoning for each in (self._message, *self._later) if each.reasoning]
        whole = replace(
            self._message,
            content=tuple(texts),
            reasoning="\n".join((*self._reasoning, *reasoning)) or None,
            tool_calls=tuple(self.calls),
        )
        return [whole, *self.results]


class ConversationBuilder:
    """Collects messages, calls and reasoning in their order.

    Calls become a part of the assistant message before them, and so does a message after them,
    which templates would otherwise render between calls and results. Results follow their calls.
    Reasoning becomes a part of the message after it.
    """

    def __init__(self) -> None:
        self._turns: list[Message | _AssistantTurn] = []
        self._callers: dict[str, _AssistantTurn] = {}  # by the id of the call
        # Reasoning whose message has not come yet.
        self._reasoning: list[str] = []

    def add_reasoning(self, text: str) -> None:
        if text:
            self._reasoning.append(text)

    def messages(self) -> tuple[Message, ...]:
        self._add_open_reasoning()
        return tuple(
            message
            for turn in self._turns
            for message in (turn.messages() if isinstance(turn, _AssistantTurn) else [turn])
        )

    def add_message(self, message: Message) -> None:
        if message.role is Role.ASSISTANT:
            self._add_answer(message)
            return
        self._add_open_reasoning()
        caller = self._callers.get(message.tool_call_id or "")
        if message.role is Role.TOOL and caller is not None:
            caller.results.append(message)
        else:
            self._turns.append(message)

    def add_call(self, call: ToolCall) -> None:
        """A call also joins a message without calls, but reasoning begins a new one then."""
        last = self._last_turn
        joins = last is not None and not last.results and not self._reasoning
        self._add_answer(Message(Role.ASSISTANT, tool_calls=(call,)), joins=joins)

    def _add_answer(self, message: Message, *, joins: bool = False) -> None:
        turn = self._last_turn
        if turn is not None and (joins or turn.has_open_calls):
            turn.join(message, self._take_reasoning())
        else:
            if message.reasoning is not None:
                self._add_open_reasoning()
            turn = _AssistantTurn(message, self._take_reasoning())
            self._turns.append(turn)
        self._callers |= dict.fromkeys((call.id for call in message.tool_calls), turn)

    def _add_open_reasoning(self) -> None:
        """Reasoning without a message after it becomes a message of its own, or a part of the
        one whose calls are open."""
        if self._reasoning:
            self._add_answer(Message(Role.ASSISTANT))

    @property
    def _last_turn(self) -> _AssistantTurn | None:
        last = self._turns[-1] if self._turns else None
        return last if isinstance(last, _AssistantTurn) else None

    def _take_reasoning(self) -> list[str]:
        texts, self._reasoning = self._reasoning, []
        return texts
