"""The whole answer: what a stream of events adds up to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import assert_never

from serving.core.events import (
    Completed,
    Delta,
    Event,
    Failed,
    Finished,
    FinishReason,
    Progress,
    PromptScored,
    ReasoningDelta,
    Started,
    TextDelta,
    TokensGenerated,
    ToolArgsDelta,
    ToolCallStarted,
    ToolInputDelta,
    Usage,
)
from serving.core.logprobs import Token
from serving.core.request import ToolCall


@dataclass(frozen=True, slots=True)
class ReasoningItem:
    """A stretch of thinking."""

    text: str


@dataclass(frozen=True, slots=True)
class TextItem:
    """A stretch of answer text, with its tokens where they were asked for."""

    text: str
    tokens: tuple[Token, ...] = ()


@dataclass(frozen=True, slots=True)
class CustomCall:
    """A call of a custom tool, with the text that it is given."""

    id: str
    name: str
    input: str


Call = ToolCall | CustomCall
Item = ReasoningItem | TextItem | Call


@dataclass(frozen=True, slots=True)
class ChoiceResult:
    """One finished choice: its items in the order in which the model made them."""

    index: int
    items: tuple[Item, ...]
    finish_reason: FinishReason
    token_ids: tuple[int, ...] = ()  # all that were made, where they were asked for
    mean_logprob: float | None = None  # of all tokens, where they are known
    cause: str | int | None = None  # what of the request ended it: see `Finished`
    raw_text: str = ""  # of `token_ids`: see `TokensGenerated`

    @property
    def text(self) -> str:
        """All answer text."""
        return "".join(item.text for item in self.items if isinstance(item, TextItem))

    @property
    def tokens(self) -> tuple[Token, ...]:
        """The tokens of all answer text."""
        items = (item for item in self.items if isinstance(item, TextItem))
        return tuple(token for item in items for token in item.tokens)

    @property
    def reasoning(self) -> str:
        """All thinking."""
        return "".join(item.text for item in self.items if isinstance(item, ReasoningItem))

    @property
    def tool_calls(self) -> tuple[Call, ...]:
        """All tool calls, in order."""
        return tuple(item for item in self.items if isinstance(item, Call))


@dataclass(frozen=True, slots=True)
class Result:
    """A finished request. Choices are sorted by index; `completed_at` is in whole Unix
    seconds. The last three tell of each prompt, to those who asked."""

    choices: tuple[ChoiceResult, ...]
    usage: Usage
    completed_at: int
    prompt_ids: tuple[tuple[int, ...], ...] = ()
    scored_prompts: tuple[tuple[Token, ...], ...] = ()
    prompt_texts: tuple[str, ...] = ()


class _ChoiceFold:
    """Grows the items of one choice."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.token_ids: list[int] = []
        self.raw_text = ""
        self.finished: Finished | None = None

    def add(self, event: Delta) -> None:
        match event:
            case ReasoningDelta():
                self._think(event.text)
            case TextDelta():
                self._say(event)
            case ToolCallStarted(id=id_, name=name, is_custom=is_custom):
                self.items.append((CustomCall if is_custom else ToolCall)(id_, name, ""))
            case ToolArgsDelta(index=index, text=text) | ToolInputDelta(index=index, text=text):
                self._grow_call(index, text)
            case _:
                assert_never(event)

    def _think(self, text: str) -> None:
        last = self.items[-1] if self.items else None
        if isinstance(last, ReasoningItem):
            self.items[-1] = ReasoningItem(last.text + text)
        else:
            self.items.append(ReasoningItem(text))

    def _say(self, delta: TextDelta) -> None:
        last = self.items[-1] if self.items else None
        if isinstance(last, TextItem):
            self.items[-1] = TextItem(last.text + delta.text, last.tokens + delta.tokens)
        else:
            self.items.append(TextItem(delta.text, delta.tokens))

    def _grow_call(self, index: int, text: str) -> None:
        places = [at for at, item in enumerate(self.items) if isinstance(item, Call)]
        at = places[index]
        match self.items[at]:
            case ToolCall(id_, name, arguments):
                self.items[at] = ToolCall(id_, name, arguments + text)
            case CustomCall(id_, name, input_):
                self.items[at] = CustomCall(id_, name, input_ + text)


class ResultBuilder:
    """Adds events up to a `Result`. Raises the error of a `Failed` event."""

    def __init__(self) -> None:
        self._choices: dict[int, _ChoiceFold] = {}
        self._completed: Completed | None = None
        self._started = Started()
        self._scored: dict[int, tuple[Token, ...]] = {}

    def feed(self, event: Event) -> None:
        """Take one event. Raises `ServingError` for `Failed`."""
        match event:
            case Started():
                self._started = event
            case Progress():
                pass
            case PromptScored(prompt=prompt, tokens=tokens):
                self._scored[prompt] = tokens
            case TokensGenerated():
                made = self._choice(event.choice)
                made.token_ids += event.token_ids
                made.raw_text += event.text
            case Finished(choice=choice):
                self._choice(choice).finished = event
            case Completed():
                self._completed = event
            case Failed(error=error):
                raise error
            case _:
                self._choice(event.choice).add(event)

    def result(self) -> Result:
        """The whole. Raises ValueError while a choice or the request is unfinished."""
        completed = self._completed
        if completed is None:
            raise ValueError("the request has not completed")
        choices = []
        for index, choice in sorted(self._choices.items()):
            finished = choice.finished
            if finished is None:
                raise ValueError(f"choice {index} has not finished")
            items, token_ids = tuple(choice.items), tuple(choice.token_ids)
            choices.append(
                ChoiceResult(
                    index,
                    items,
                    finished.reason,
                    token_ids,
                    finished.mean_logprob,
                    finished.cause,
                    choice.raw_text,
                )
            )
        scored = tuple(tokens for _, tokens in sorted(self._scored.items()))
        return Result(
            tuple(choices),
            completed.usage,
            completed.at,
            self._started.prompt_ids,
            scored,
            self._started.prompt_texts,
        )

    def _choice(self, index: int) -> _ChoiceFold:
        return self._choices.setdefault(index, _ChoiceFold())


def fold(events: Iterable[Event]) -> Result:
    """The result of a finished stream. Raises the error of a failed one."""
    total = ResultBuilder()
    for event in events:
        total.feed(event)
    return total.result()
