"""What the tests of this room build again and again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from serving.constraints.families.registry import by_name
from serving.core.events import Completed, Event, Finished, FinishReason, Usage
from serving.core.request import Repetition, Tool
from serving.core.result import ChoiceResult, build_result
from serving.output.choice import ChoiceReader
from serving.output.detokenize import Decoder
from serving.output.parse_events import (
    CallArgs,
    CallEnded,
    CallInput,
    CallStarted,
    Parser,
    Piece,
    Reasoning,
    Text,
)

MODEL = Path(__file__).parents[2] / "models" / "tiny-chat"
WEATHER = Tool("get_weather", "Get the weather", {"type": "object", "properties": {}})

Folded = list[tuple[str, str]]


def a_parser(
    format_name: str,
    *,
    opens_reasoning: bool = False,
    has_tools: bool = True,
    tools: Sequence[Tool] = (WEATHER,),
) -> Parser:
    tools = tools if has_tools else ()
    return by_name(format_name).parser.new_parser(tools, opens_reasoning=opens_reasoning)


def pieces_of(parser: Parser, parts: Iterable[str]) -> list[Piece]:
    pieces = [piece for part in parts for piece in parser.feed(part)]
    return pieces + parser.finish()


def folded(pieces: Iterable[Piece]) -> Folded:
    """Neighbours of one kind joined; a call is one entry, with a mark while it is open."""
    items: Folded = []
    for piece in pieces:
        match piece:
            case Text(text):
                _grow(items, "text", text)
            case Reasoning(text):
                _grow(items, "reasoning", text)
            case CallStarted(name, is_custom):
                items.append((f"open custom {name}" if is_custom else f"open {name}", ""))
            case CallArgs(text) | CallInput(text):
                items[-1] = (items[-1][0], items[-1][1] + text)
            case CallEnded():
                items[-1] = (items[-1][0].removeprefix("open "), items[-1][1])
    return items


def _grow(items: Folded, kind: str, text: str) -> None:
    assert text, "an empty piece says nothing"
    if items and items[-1][0] == kind:
        items[-1] = (kind, items[-1][1] + text)
    else:
        items.append((kind, text))


def read(
    format_name: str,
    text: str,
    *,
    opens_reasoning: bool = False,
    tools: Sequence[Tool] = (WEATHER,),
) -> Folded:
    """What a format makes of a whole text."""
    parser = a_parser(format_name, opens_reasoning=opens_reasoning, tools=tools)
    return folded(pieces_of(parser, [text]))


def cut(text: str, cuts: Iterable[int]) -> list[str]:
    """`text` in parts, with a border at each place of `cuts` that is inside it."""
    borders = [0, *sorted(min(place, len(text)) for place in cuts), len(text)]
    return [text[start:end] for start, end in pairwise(borders)]


class CharDecoder:
    """A decoder for tests that have no tokenizer: an id is a character."""

    def feed(self, token_id: int) -> str:
        return chr(token_id)

    def finish(self) -> str:
        return ""


def ids_of(text: str) -> list[int]:
    return [ord(character) for character in text]


def a_reader(
    format_name: str = "think+hermes",
    *,
    stop: Sequence[str] = (),
    include_stop_text: bool = False,
    stop_ids: Sequence[int] = (),
    end_ids: Sequence[int] = (),
    repetition: Repetition | None = None,
    min_tokens: int = 0,
    hides_reasoning: bool = False,
    opens_reasoning: bool = False,
    decoder: Decoder | None = None,
    tells_tokens: bool = False,
    tells_silent_tokens: bool = False,
) -> ChoiceReader:
    return ChoiceReader(
        0,
        decoder or CharDecoder(),
        a_parser(format_name, opens_reasoning=opens_reasoning),
        stop=stop,
        include_stop_text=include_stop_text,
        stop_ids=stop_ids,
        end_ids=end_ids,
        repetition=repetition,
        min_tokens=min_tokens,
        hides_reasoning=hides_reasoning,
        tells_tokens=tells_tokens,
        tells_silent_tokens=tells_silent_tokens,
        new_call_id=lambda index: f"call_{index}",
    )


def choice_of(events: Iterable[Event]) -> ChoiceResult:
    """The one finished choice that events add up to."""
    result = build_result([*events, Completed(Usage(), at=0)])
    return result.choices[0]


def reason_of(events: Sequence[Event]) -> FinishReason:
    last = events[-1]
    assert isinstance(last, Finished)
    return last.reason
