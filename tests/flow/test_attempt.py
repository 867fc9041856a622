"""One submission: the engine's updates of several choices become events in order."""

from __future__ import annotations

from typing import Any, cast

from tests.fakes.engine import InMemoryEngine
from vinery_serving.core.events import Completed, Event, Finished, FinishReason, Started, TextDelta
from vinery_serving.core.request import Endpoint, GenerationRequest, RawPrompts
from vinery_serving.flow.directory import Engine
from vinery_serving.flow.generate import run
from vinery_serving.flow.meter import Meter
from vinery_serving.flow.prepared import PreparedRequest
from vinery_serving.prompting.assets import Prompt
from vinery_serving.transport.messages import Accepted, SamplingParams, Submit, TokenOutput

SUBMIT = Submit(id=0, prompt_ids=b"", sampling=SamplingParams(), max_new_tokens=9, deadline_s=9.0)


async def events_of(engine: InMemoryEngine, *, n: int, meter: Meter | None = None) -> list[Event]:
    request = GenerationRequest(Endpoint.COMPLETIONS, "m", RawPrompts(("a",)), n=n)
    prepared = PreparedRequest(
        request, cast(Engine, engine), meter or Meter(), "t", (Prompt((1,)),), (SUBMIT,) * n, n
    )
    return [event async for batch in run(prepared, None) for event in batch]


def output(id_: int, text: str, **fields: Any) -> TokenOutput:
    return TokenOutput(id_, tuple(text.encode()), finish="stop", **fields)


async def test_no_event_is_sent_before_every_choice_is_accepted() -> None:
    """The engine may generate tokens of one choice before it accepts the next."""
    engine = InMemoryEngine([Accepted(1), output(1, "A")], [Accepted(2)], [output(2, "B")])

    events = await events_of(engine, n=2)

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

    events = await events_of(engine, n=2)

    assert isinstance(events[-1], Completed)
    assert events[-1].usage.num_cached_tokens == 1


async def test_the_times_of_encoding_pictures_are_added_up() -> None:
    first = output(1, "A", queue_s=0.0, encode_s=0.5)
    second = output(2, "B", queue_s=0.0, encode_s=0.25)
    engine = InMemoryEngine([Accepted(1), Accepted(2), first, second])
    meter = Meter()

    await events_of(engine, n=2, meter=meter)

    assert meter.encode_s == 0.75
