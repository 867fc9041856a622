"""Reads samples as a server does, and compares what a client gets with what was meant."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.calls.damage import Sample
from benchmarks.calls.forms import FORMS
from benchmarks.calls.values import TOOLS, Call
from vinery_serving.constraints.families.registry import by_name
from vinery_serving.core.events import Event, TextDelta, ToolCallDelta, ToolCallStarted
from vinery_serving.core.request import Tool
from vinery_serving.output.reader import ChoiceReader
from vinery_serving.output.writer import EventWriter


class _PartDecoder:
    """A token is a part of the text: its id is the index of the part."""

    dropped_ids: frozenset[int] = frozenset()

    def __init__(self, parts: Sequence[str]) -> None:
        self._parts = parts

    def feed(self, token_id: int) -> str:
        return self._parts[token_id]

    def feed_all(self, token_ids: Sequence[int]) -> str:
        return "".join(map(self.feed, token_ids))

    def finish(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client gets: text, and calls as a name and the text of the arguments. `is_open`: the
    last call has no end."""

    text: str
    calls: tuple[tuple[str, str], ...]
    is_open: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """How well one sample was read."""

    num_calls: int
    num_whole: int
    num_neighbours: int
    num_neighbours_whole: int
    num_ended: int
    num_valid: int  # of those that ended: their arguments are JSON
    has_markup: bool  # in the text
    differs_in_parts: bool


def read(
    family: str, parts: Sequence[str], *, is_cut: bool = False, tools: Sequence[Tool] = TOOLS
) -> Answer:
    """Return the answer of an output that arrives in these parts. `is_cut`: by the token limit,
    otherwise the model ended it."""
    writer = EventWriter(0, new_call_id=str, tools=tools)
    parser = by_name(family).parser.new_parser(writer, tools, opens_reasoning=False)
    reader = ChoiceReader(writer, _PartDecoder(parts), parser)
    events = [event for at in range(len(parts)) for event in reader.feed([at])]
    reason: Literal["stop", "length"] = "length" if is_cut else "stop"
    return _folded([*events, *reader.finish(reason)], is_open=writer.has_open_call)


def _folded(events: Iterable[Event], *, is_open: bool) -> Answer:
    text, names, arguments = "", [], []
    for event in events:
        match event:
            case TextDelta():
                text += event.text
            case ToolCallStarted():
                names.append(event.name)
                arguments.append("")
            case ToolCallDelta():
                arguments[-1] += event.text
    return Answer(text, tuple(zip(names, arguments, strict=True)), is_open)


def judge(family: str, sample: Sample, cuts: Iterable[Sequence[str]]) -> Verdict:
    """Read a sample whole and in the parts of each cut."""
    whole = read(family, [sample.text], is_cut=sample.is_cut)
    ended = whole.calls[:-1] if whole.is_open else whole.calls
    values = [Call(name, value) for name, text in ended if (value := _parsed(text)) is not None]
    undamaged = [call for at, call in enumerate(sample.meant) if at != sample.damaged]
    meant = undamaged if sample.is_cut else sample.meant
    neighbours = [] if sample.damaged is None else undamaged
    in_parts = (read(family, parts, is_cut=sample.is_cut) for parts in cuts)
    return Verdict(
        len(meant),
        num_in_order(meant, values) if len(values) <= len(meant) + sample.is_cut else 0,
        len(neighbours),
        num_in_order(neighbours, values),
        len(ended),
        len(values),
        any(mark in whole.text for mark in FORMS[family].markup),
        any(each != whole for each in in_parts),
    )


def num_in_order(meant: Sequence[Call], found: Sequence[Call]) -> int:
    """Return how many of the calls that were meant are among those found, in their order."""
    counts = [0] * (len(found) + 1)
    for call in meant:
        before = counts[:]
        for at, each in enumerate(found):
            counts[at + 1] = max(counts[at], before[at] + (same(call, each)), before[at + 1])
    return counts[-1]


def same(one: Call, other: Call) -> bool:
    """Whether both are the same call. True is not 1 here."""
    return json.dumps([one.name, one.arguments], sort_keys=True) == json.dumps(
        [other.name, other.arguments], sort_keys=True
    )


def _parsed(text: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
