"""Builders for the tests of this room."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.fakes.engine import CharacterDecoder
from tests.results import build_result
from vinery_serving.core import events as ev
from vinery_serving.core.request import Tool
from vinery_serving.core.result import ChoiceResult
from vinery_serving.grammars.families.registry import by_name
from vinery_serving.output.detokenize import Decoder
from vinery_serving.output.lexer import Parser
from vinery_serving.output.reader import ChoiceReader
from vinery_serving.output.writer import EventWriter

MODEL = Path(__file__).parents[2] / "models" / "tiny-chat"
WEATHER = Tool("get_weather", "Get the weather", {"type": "object", "properties": {}})

Folded = list[tuple[str, str]]


def object_of(required: Sequence[str] | None = None, **properties: Any) -> dict[str, Any]:
    """The schema of an object. Without `required`, all properties are required."""
    names = list(properties) if required is None else list(required)
    return {"type": "object", "properties": properties, "required": names}


class Parsing:
    """A parser with a writer: turns text into events."""

    def __init__(
        self, family: str, tools: Sequence[Tool], *, opens_reasoning: bool, **settings: Any
    ) -> None:
        self.writer = EventWriter(0, new_call_id=call_id, tools=tools, **settings)
        self.parser: Parser = by_name(family).parser.new_parser(
            self.writer, tools, opens_reasoning=opens_reasoning
        )

    @property
    def is_reasoning(self) -> bool:
        return self.parser.is_reasoning

    @property
    def has_open_call(self) -> bool:
        return self.writer.has_open_call

    def feed(self, text: str) -> list[ev.Event]:
        self.parser.feed(text)
        return self.writer.take()

    def finish(self, *, is_whole: bool = False) -> list[ev.Event]:
        """`is_whole`: the model has ended the text; otherwise it may be cut."""
        self.parser.finish(is_closed=is_whole)
        self.writer.finish()
        return self.writer.take()


def call_id(index: int) -> str:
    return f"call_{index}"


def a_call_started(name: str, index: int = 0) -> ev.ToolCallStarted:
    return ev.ToolCallStarted(0, index, call_id(index), name)


def a_parser(
    family: str,
    *,
    opens_reasoning: bool = False,
    has_tools: bool = True,
    tools: Sequence[Tool] = (WEATHER,),
) -> Parsing:
    return Parsing(family, tools if has_tools else (), opens_reasoning=opens_reasoning)


def events_of(parsing: Parsing, parts: Iterable[str], *, is_whole: bool = False) -> list[ev.Event]:
    events = [event for part in parts for event in parsing.feed(part)]
    return events + parsing.finish(is_whole=is_whole)


def folded(parsing: Parsing, parts: Iterable[str], *, is_whole: bool = False) -> Folded:
    """Neighbours of one kind joined; a call is one entry, with a mark while it is open."""
    items: Folded = []
    for event in events_of(parsing, parts, is_whole=is_whole):
        match event:
            case ev.TextDelta(_, text):
                _grow(items, "text", text)
            case ev.ReasoningDelta(_, text):
                _grow(items, "reasoning", text)
            case ev.ToolCallStarted():
                items.append((f"custom {event.name}" if event.is_custom else event.name, ""))
            case ev.ToolCallDelta(_, _, text):
                items[-1] = (items[-1][0], items[-1][1] + text)
    if parsing.has_open_call:
        items[-1] = (f"open {items[-1][0]}", items[-1][1])
    return items


def _grow(items: Folded, kind: str, text: str) -> None:
    assert text, "an empty delta"
    if items and items[-1][0] == kind:
        items[-1] = (kind, items[-1][1] + text)
    else:
        items.append((kind, text))


def cut(text: str, cuts: Iterable[int]) -> list[str]:
    """`text` in parts, with a border at each index of `cuts` that is inside it."""
    borders = [0, *sorted(min(at, len(text)) for at in cuts), len(text)]
    return [text[start:end] for start, end in pairwise(borders)]


def ids_of(text: str) -> list[int]:
    return [ord(character) for character in text]


def a_reader(
    family: str = "think+hermes",
    *,
    decoder: Decoder | None = None,
    opens_reasoning: bool = False,
    stop: Sequence[str] = (),
    include_stop_text: bool = False,
    hides_reasoning: bool = False,
    exposes_tokens: bool = False,
    **settings: Any,
) -> ChoiceReader:
    parsing = Parsing(
        family,
        (WEATHER,),
        opens_reasoning=opens_reasoning,
        stop=stop,
        include_stop_text=include_stop_text,
        hides_reasoning=hides_reasoning,
        exposes_tokens=exposes_tokens,
    )
    return ChoiceReader(
        parsing.writer,
        decoder or CharacterDecoder(),
        parsing.parser,
        include_stop_text=include_stop_text,
        **settings,
    )


def choice_of(events: Iterable[ev.Event]) -> ChoiceResult:
    """The one finished choice that events add up to."""
    result = build_result([*events, ev.Completed(ev.TokenCounts(), at=0)])
    return result.choices[0]


def reason_of(events: Sequence[ev.Event]) -> ev.FinishReason:
    last = events[-1]
    assert isinstance(last, ev.Finished)
    return last.reason
