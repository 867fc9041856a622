"""One submission: the engine's updates of several choices become events in order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.fakes.engine import InMemoryEngine
from tests.flow.tiny_chat import RAW, in_memory
from vinery_serving.core.events import (
    Completed,
    Event,
    Finished,
    FinishReason,
    Started,
    TextDelta,
    Usage,
)
from vinery_serving.flow.generate import run
from vinery_serving.flow.meter import Meter
from vinery_serving.transport.messages import Accepted, TokenOutput


async def events_of(engine: InMemoryEngine, meter: Meter | None = None) -> list[Event]:
    prepared = in_memory(engine, replace(RAW, n=2), meter=meter)
    return [event async for batch in run(prepared, None) for event in batch]


def output(id_: int, text: str, **fields: Any) -> TokenOutput:
    return TokenOutput(id_, tuple(text.encode()), finish="stop", **fields)


async def test_no_event_is_sent_before_every_choice_is_accepted() -> None:
    """The engine may generate tokens of one choice before it accepts the next."""
    engine = InMemoryEngine([Accepted(1), output(1, "A")], [Accepted(2)], [output(2, "B")])

    events = await events_of(engine)

    assert events[:5] == [
        Started(2, num_prompt_tokens=1),
        TextDelta(0, "A"),
        Finished(0, FinishReason.STOP),
        TextDelta(1, "B"),
        Finished(1, FinishReason.STOP),
    ]
    assert isinstance(events[5], Completed)


async def test_the_cached_part_of_a_prompt_counts_once() -> None:
    first = output(1, "A", queue_s=0.0, num_cached_tokens=1)
    second = output(2, "B", queue_s=0.0, num_cached_tokens=1)
    engine = InMemoryEngine([Accepted(1), Accepted(2), first, second])

    events = await events_of(engine)

    assert isinstance(events[-1], Completed)
    assert events[-1].usage.num_cached_tokens == 1


async def test_the_times_of_encoding_pictures_are_added_up() -> None:
    first = output(1, "A", queue_s=0.0, encode_s=0.5)
    second = output(2, "B", queue_s=0.0, encode_s=0.25)
    engine = InMemoryEngine([Accepted(1), Accepted(2), first, second])
    meter = Meter()

    await events_of(engine, meter)

    assert meter.encode_s == 0.75


def test_a_lost_attempt_costs_nothing() -> None:
    meter = Meter(num_prompt_tokens=9, num_output_tokens=5, num_cached_tokens=3)

    meter.restart()

    assert meter.usage == Usage(num_prompt_tokens=9)
