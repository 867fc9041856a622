"""The whole answer, built from a stream of events."""

from dataclasses import dataclass, replace
from typing import assert_never

from vinery_serving.core import events
from vinery_serving.core.request import Sampling, ToolCall


@dataclass(frozen=True, slots=True)
class ReasoningItem:
    """Reasoning text without interruption."""

    text: str


@dataclass(frozen=True, slots=True)
class TextItem:
    """Answer text without interruption. `tokens` is empty without log-probabilities."""

    text: str
    tokens: tuple[events.Token, ...] = ()


Item = ReasoningItem | TextItem | ToolCall


@dataclass(frozen=True, slots=True)
class ChoiceResult:
    """A finished choice. `items` are in the order of generation."""

    index: int
    items: tuple[Item, ...]
    finish_reason: events.FinishReason
    token_ids: tuple[int, ...] = ()  # of all generated tokens; empty: not requested
    mean_logprob: float | None = None  # None: unknown
    cause: str | int | None = None  # see `Finished`
    raw_text: str = ""  # of `token_ids`: see `TokensGenerated`
    is_context_full: bool = False  # see `Finished`
    elapsed_s: float | None = None  # see `Arrived`; None: not requested

    @property
    def text(self) -> str:
        return "".join(item.text for item in self.items if isinstance(item, TextItem))

    @property
    def tokens(self) -> tuple[events.Token, ...]:
        items = (item for item in self.items if isinstance(item, TextItem))
        return tuple(token for item in items for token in item.tokens)

    @property
    def reasoning(self) -> str:
        return "".join(item.text for item in self.items if isinstance(item, ReasoningItem))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple(item for item in self.items if isinstance(item, ToolCall))


@dataclass(frozen=True, slots=True)
class Result:
    choices: tuple[ChoiceResult, ...]  # sorted by index
    usage: events.TokenCounts
    completed_at: int  # whole Unix seconds
    # An entry for each prompt; empty if the client did not ask for these.
    prompt_ids: tuple[tuple[int, ...], ...] = ()
    scored_prompts: tuple[tuple[events.Token, ...], ...] = ()
    prompt_texts: tuple[str, ...] = ()
    prompt_chars: tuple[int, ...] = ()
    sampling: Sampling | None = None  # see `Started`
    is_kept: bool = True  # see `Completed`
    compaction: str = ""  # see `Compacted`


class _ChoiceBuilder:
    def __init__(self) -> None:
        self.items: list[Item] = []
        self.token_ids: list[int] = []
        self.raw_text = ""
        self.finished: events.Finished | None = None
        self.elapsed_s: float | None = None

    def add(self, event: events.Delta) -> None:
        last = self.items[-1] if self.items else None
        match event:
            case events.ReasoningDelta(text=text):
                if isinstance(last, ReasoningItem):
                    self.items[-1] = ReasoningItem(last.text + text)
                else:
                    self.items.append(ReasoningItem(text))
            case events.TextDelta(text=text, tokens=tokens):
                if isinstance(last, TextItem):
                    self.items[-1] = TextItem(last.text + text, last.tokens + tokens)
                else:
                    self.items.append(TextItem(text, tokens))
            case events.ToolCallStarted(id=id_, name=name, is_custom=is_custom):
                self.items.append(ToolCall(id_, name, "", is_custom))
            case events.ToolCallDelta(index=index, text=text):
                calls = [
                    (at, item) for at, item in enumerate(self.items) if isinstance(item, ToolCall)
                ]
                at, call = calls[index]
                self.items[at] = replace(call, arguments=call.arguments + text)
            case _:
                assert_never(event)

    def result(self, index: int) -> ChoiceResult:
        finished = self.finished
        if finished is None:
            raise ValueError(f"choice {index} has not finished")
        return ChoiceResult(
            index,
            tuple(self.items),
            finished.reason,
            tuple(self.token_ids),
            finished.mean_logprob,
            finished.cause,
            self.raw_text,
            finished.is_context_full,
            self.elapsed_s,
        )


class ResultBuilder:
    def __init__(self) -> None:
        self._choices: dict[int, _ChoiceBuilder] = {}
        self._completed: events.Completed | None = None
        self._started = events.Started()
        self._scored: dict[int, tuple[events.Token, ...]] = {}
        self._elapsed_s: float | None = None
        self._compaction = ""

    def feed(self, event: events.Event) -> None:
        """Add one event. Raises the `ServingError` of a `Failed` event."""
        match event:
            case events.Started():
                # Perhaps again: then nothing of before counts but a compaction.
                self._started, self._choices, self._scored = event, {}, {}
            case events.Compacted(content=content):
                self._compaction = content
            case events.Progress() | events.FirstToken():
                pass
            case events.PromptScored(prompt=prompt, tokens=tokens):
                self._scored[prompt] = tokens
            case events.TokensGenerated():
                choice = self._choice(event.choice)
                choice.token_ids += event.token_ids
                choice.raw_text += event.text
            case events.Finished(choice=index):
                self._choice(index).finished = event
                self._choice(index).elapsed_s = self._elapsed_s
            case events.Arrived(elapsed_s=elapsed_s):
                self._elapsed_s = elapsed_s
            case events.Completed():
                self._completed = event
            case events.Failed(error=error):
                raise error
            case _:
                self._choice(event.choice).add(event)

    def result(self) -> Result:
        """Raises ValueError while a choice or the request is unfinished."""
        completed = self._completed
        if completed is None:
            raise ValueError("the request has not completed")
        return Result(
            tuple(choice.result(index) for index, choice in sorted(self._choices.items())),
            completed.usage,
            completed.at,
            self._started.prompt_ids,
            tuple(tokens for _, tokens in sorted(self._scored.items())),
            self._started.prompt_texts,
            self._started.prompt_chars,
            self._started.sampling,
            compaction=self._compaction,
        )

    def _choice(self, index: int) -> _ChoiceBuilder:
        return self._choices.setdefault(index, _ChoiceBuilder())
