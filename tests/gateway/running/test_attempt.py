"""One submission: the engine's updates of several choices become events in order."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tests.fakes.engine import InMemoryEngine
from tests.gateway.running.tiny_chat import RAW, in_memory
from vinery_serving.core import events as ev
from vinery_serving.core.dialects import V3
from vinery_serving.core.errors import EngineFailure
from vinery_serving.core.request import Handling
from vinery_serving.gateway.engines.meter import Meter
from vinery_serving.gateway.running.attempt import IntervalBuffer
from vinery_serving.gateway.running.generate import run
from vinery_serving.gateway.running.grants import NUM_AHEAD, NUM_EACH, TokenGrants
from vinery_serving.transport.messages import Accepted, Rejected, TokenOutput


async def events_of(engine: InMemoryEngine, meter: Meter | None = None) -> list[ev.Event]:
    prepared = in_memory(engine, replace(RAW, n=2), meter=meter)
    return [event async for batch in run(prepared, None) for event in batch]


def output(id_: int, text: str, finish: str | None = "stop", **fields: Any) -> TokenOutput:
    return TokenOutput(id_, tuple(text.encode()), finish=finish, **fields)


async def test_no_event_is_sent_before_every_choice_is_accepted():
    """The engine may generate tokens of a choice before accepting the next choice."""
    begun = Accepted(1, is_begun=True)
    script = [[Accepted(1), output(1, "A")], [begun], [Accepted(2)], [output(2, "B")]]
    meter = Meter()

    events = await events_of(InMemoryEngine(*script), meter)

    assert meter.is_prefilling
    assert events[:5] == [
        ev.Started(2, num_prompt_tokens=1),
        ev.TextDelta(0, "A"),
        ev.Finished(0, ev.FinishReason.STOP),
        ev.TextDelta(1, "B"),
        ev.Finished(1, ev.FinishReason.STOP),
    ]
    assert isinstance(events[5], ev.Completed)


async def test_the_cached_part_of_a_prompt_counts_once_and_times_of_encoding_are_added_up():
    first = output(1, "A", queue_s=0.0, num_cached_tokens=1, encode_s=0.5)
    second = output(2, "B", queue_s=0.0, num_cached_tokens=1, encode_s=0.25)
    meter = Meter()

    events = await events_of(InMemoryEngine([Accepted(1), Accepted(2), first, second]), meter)

    assert isinstance(events[-1], ev.Completed)
    assert events[-1].usage.num_cached_tokens == 1
    assert meter.encode_s == 0.75


async def test_a_client_that_leaves_the_queue_costs_nothing_and_has_waited():
    meter = Meter(started_at=0.0, tokens=ev.TokenCounts(9))
    batches = run(in_memory(InMemoryEngine([Accepted(1)], []), RAW, meter=meter), None)
    [started] = await anext(batches)
    await batches.aclose()

    assert isinstance(started, ev.Started)
    assert meter.billed_tokens == ev.NO_TOKENS
    assert meter.waited_s is not None
    assert Meter().waited_s is None, "no engine had it"


# -- Chunks of several tokens: no event is lost or held longer than the interval ---------

FINISHED = ev.Finished(0, ev.FinishReason.STOP)


def groups_of_tokens(sizes: list[int]) -> list[list[ev.Event]]:
    return [[ev.TokensGenerated(0, (1,) * size), ev.TextDelta(0, "x" * size)] for size in sizes]


def text_of(events: list[ev.Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, ev.TextDelta))


@given(st.lists(st.integers(1, 5), min_size=1), st.integers(2, 9))
def test_all_events_are_released_in_large_chunks(sizes, interval):
    buffer = IntervalBuffer(interval)
    groups = groups_of_tokens(sizes)
    groups[-1].append(FINISHED)

    released = [buffer.add(group, size) for group, size in zip(groups, sizes, strict=True)]

    assert text_of([event for events in released for event in events]) == "x" * sum(sizes)
    assert released[0]
    assert released[-1][-1] == FINISHED
    chunks = [len(text_of(events)) for events in released if events]
    assert all(interval <= size < interval + 5 for size in chunks[1:-1])
    for events in released:
        deltas = [event for event in events if isinstance(event, ev.TextDelta)]
        generated = [event for event in events if isinstance(event, ev.TokensGenerated)]
        assert (len(deltas), len(generated)) == ((1, 1) if events else (0, 0))
        assert not events or len(generated[0].token_ids) == len(deltas[0].text)


async def batches_of(*script: list[Any], **fields: Any) -> list[list[ev.Event]]:
    """Return the batches of events. A failure of the engine is an empty batch at the end."""
    fields = {"is_streamed": True, "handling": Handling(stream_interval=3), **fields}
    request = replace(RAW, **fields)
    prepared = in_memory(InMemoryEngine(*script), request)
    batches: list[list[ev.Event]] = []
    try:
        async for batch in run(prepared, None):
            batches.append(batch)
    except EngineFailure:
        batches.append([])
    return batches


async def test_a_stream_has_a_chunk_for_so_many_tokens_and_whole_answers_are_not_held():
    a, b, c, d = ([output(1, text, None)] for text in "abcd")
    first, *rest = await batches_of([Accepted(1), *a], b, c, d, [output(1, "e", "length")])
    assert text_of(first) == "a"
    assert [text_of(batch) for batch in rest] == ["bcd", "e"]
    assert isinstance(rest[-1][-1], ev.Completed)

    # Held events precede an error.
    failure = [Rejected(1, "engine_error", "It failed.")]
    first, second, end = await batches_of([Accepted(1), *a], b, failure)
    assert (text_of(first), text_of(second), end) == ("a", "b", [])

    # Under /v3 the first token is shown, whatever text it becomes.
    (_, shown, *_), *rest = await batches_of([Accepted(1), *a], b, [output(1, "c")], dialect=V3)
    assert shown == ev.FirstToken(0)
    assert not any(isinstance(event, ev.FirstToken) for batch in rest for event in batch)

    # The time of the tokens comes before their events.
    _, first, last = await batches_of([Accepted(1)], a, [output(1, "b")], shows_arrival=True)
    for arrived, *_ in (first, last):
        assert isinstance(arrived, ev.Arrived)

    batches = await batches_of([Accepted(1), *a], b, [output(1, "c")], is_streamed=False)
    assert [text_of(batch) for batch in batches] == ["a", "b", "c"]


# -- No more tokens are granted to answers than were reserved, and no answer waits for availabl


@dataclass
class Source:
    """A `TokenSource` with `num_tokens`, the first of them granted."""

    num_tokens: int
    num_granted: int
    is_last: bool = False
    requested: list[int] = field(default_factory=list)

    async def extend(self, num_tokens: int) -> None:
        assert not self.is_last
        self.requested.append(num_tokens)
        given_ = min(num_tokens, self.num_tokens - self.num_granted)
        self.num_granted += given_
        self.is_last = given_ < num_tokens


class Generation:
    """Answers in any order of generation, which a gateway reads now and then. An answer ends at its
    limit, the last grant or an end token."""

    def __init__(self, source: Source, wanted: list[int]) -> None:
        self.source, self.wanted = source, dict(enumerate(wanted))
        self.grants = TokenGrants(source, dict(self.wanted))
        self.granted = dict(self.grants.num_granted)
        self.made, self.used = dict.fromkeys(self.wanted, 0), dict.fromkeys(self.wanted, 0)
        self.open, self.last = set(self.wanted), set[int]()
        self.send_grants(self.open if self.grants.is_last else ())

    def send_grants(self, ids: Iterable[int]) -> None:
        for id_ in ids:
            self.granted[id_] = self.grants.num_granted[id_]
            if self.grants.is_last:
                self.last.add(id_)

    def has_ended(self, id_: int) -> bool:
        is_at_end = id_ in self.last and self.made[id_] >= self.granted[id_]
        return is_at_end or self.made[id_] == self.wanted[id_]

    def write(self, id_: int, num_tokens: int) -> None:
        if not self.has_ended(id_):
            most = min(self.granted[id_], self.wanted[id_])
            self.made[id_] = max(self.made[id_], min(self.made[id_] + num_tokens, most))

    def stop(self, id_: int) -> None:
        self.used[id_] = self.wanted[id_] = self.made[id_]
        self.open.discard(id_)

    def read(self) -> None:
        for id_ in list(self.open):
            self.used[id_] = self.made[id_]
            if self.has_ended(id_):
                self.open.discard(id_)
        if self.open and sum(self.used.values()) >= self.grants.next_check_at:
            used = {id_: self.used[id_] for id_ in self.open}
            update = self.grants.update(used, sum(self.used.values()))
            self.send_grants(asyncio.run(update))


STEPS = st.lists(
    st.tuples(st.just("write"), st.integers(0), st.integers(1, 300))
    | st.tuples(st.just("stop"), st.integers(0), st.just(0))
    | st.just(("read", 0, 0)),
    max_size=40,
)


@given(st.lists(st.integers(1, 500), min_size=1, max_size=5), st.integers(0, 2000), STEPS)
# An answer that stops by itself after its last grant.
@example([3], 1, [("write", 0, 1), ("read", 0, 0), ("stop", 0, 0)])
def test_answers_generate_no_more_than_granted_and_at_the_end_all_of_it(wanted, num_tokens, steps):
    num_first = min(sum(wanted), (NUM_AHEAD + NUM_EACH) * len(wanted), len(wanted) + num_tokens)
    generation = Generation(Source(len(wanted) + num_tokens, num_first), wanted)
    for what, number, num in steps:
        match what:
            case "write":
                generation.write(number % len(wanted), num)
            case "stop":
                generation.stop(number % len(wanted))
            case "read":
                generation.read()
        assert sum(generation.made.values()) <= generation.source.num_granted
    for _ in range(500):  # no answer waits forever
        for id_ in generation.open:
            generation.write(id_, 7)
        generation.read()
    assert not generation.open
    if generation.last == {0} and len(wanted) == 1 and generation.has_ended(0):
        assert generation.made[0] == min(generation.wanted[0], generation.source.num_tokens)


def two_answers(num_tokens: int) -> Generation:
    return Generation(Source(num_tokens, 2 * (NUM_AHEAD + NUM_EACH)), [1000, 1000])


def test_unused_tokens_of_an_answer_go_to_the_others_and_the_last_ones_are_divided():
    generation = two_answers(10_000)
    generation.stop(1)
    generation.write(0, NUM_EACH)
    generation.read()
    assert generation.source.requested == []
    assert generation.grants.num_granted == {0: NUM_AHEAD + 2 * NUM_EACH}

    generation = two_answers(300)
    generation.write(0, NUM_EACH)
    generation.read()
    assert generation.source.is_last
    assert generation.granted == {0: 150, 1: 150}
    assert generation.last == {0, 1}
