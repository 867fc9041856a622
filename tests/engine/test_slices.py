"""A long prompt is computed in slices beside streams, and while another key uses the engine."""

import time
from array import array
from collections.abc import Callable
from itertools import count, pairwise
from typing import Any

import pytest
from msgspec import structs

from tests.engine.in_process import emptied, generation_of, random_ids
from tests.tables import table
from vinery_serving.core.request import Sampling
from vinery_serving.engine.admission import Admission, Slices
from vinery_serving.engine.batch import Batch
from vinery_serving.engine.estimates import StepTimes
from vinery_serving.engine.fair_queue import Lane
from vinery_serving.engine.generation import Generation
from vinery_serving.engine.options import EngineOptions
from vinery_serving.transport.messages import Known

pytestmark = pytest.mark.live

GREEDY, NEIGHBOUR = (1, 1), (2, 2)
NUM_LONG = 1900
SEEDS = count(1000)


def prompt(seed: int, num: int = NUM_LONG) -> list[int]:
    return random_ids(seed, num)


def generation(ids: list[int], lane: Lane = GREEDY, **values: Any) -> Generation:
    return generation_of(lane, ids, **{"max_new_tokens": 8, **values})


class Engine:
    """The loop without its socket. Counts steps instead of time."""

    def __init__(self, batch: Batch, *, is_shared: bool = True) -> None:
        self.batch = batch
        self.waiting = Admission(EngineOptions(), batch)
        self.ended: dict[Generation, int] = {}  # to the number of the step
        self.num_steps = 0
        self.computed: list[int] = []  # the longest prompt that the pipeline had after each step
        if is_shared:
            for lane in (GREEDY, NEIGHBOUR):
                self.run(generation(prompt(next(SEEDS), 8), lane=lane, max_new_tokens=1))

    def step(self) -> None:
        assert list(self.waiting.admit()) == []  # none is refused
        self.computed.append(max(len(each.added_ids) for each in self.batch._running))
        result = self.batch.step()
        self.num_steps += 1
        for new in result.generated:
            new.generation.tokens += new.token_ids
            if new.finish is not None:
                self.waiting.settle(new.generation)
                self.ended[new.generation] = self.num_steps
        for failed in result.failed:
            assert self.waiting.end_slice(failed.generation)

    def run(self, *generations: Generation) -> None:
        for each in generations:
            self.waiting.add(each)
        self.finish(*generations)

    def finish(self, *generations: Generation) -> None:
        while any(each not in self.ended for each in generations):
            self.step()


def test_a_short_prompt_waits_for_a_slice_and_a_lone_or_cached_one_for_none(batch: Batch) -> None:
    engine = Engine(batch)
    many = [generation(prompt(seed), max_new_tokens=1) for seed in range(5)]
    for each in many:
        engine.waiting.add(each)
    for at in range(8):
        engine.step()
        neighbour = generation(prompt(100 + at, 20), lane=NEIGHBOUR, max_new_tokens=1)
        began = engine.num_steps

        engine.run(neighbour)

        assert engine.ended[neighbour] - began <= 2
    engine.finish(*many)

    engine = Engine(batch, is_shared=False)
    engine.run(generation(prompt(40)))
    assert set(engine.computed) == {NUM_LONG}

    engine = Engine(batch)
    engine.run(generation(prompt(50)))
    engine.num_steps = 0
    cached = generation(prompt(50), max_new_tokens=1)

    engine.run(cached)

    assert 1 < len(set(engine.computed[-engine.num_steps :])) <= engine.num_steps <= 6
    assert (cached.num_cached or 0) >= NUM_LONG - 64, "all slices count"

    slices = Slices(batch)
    slices.note_use(GREEDY, 0.0)
    old = generation(prompt(next(SEEDS)))
    for now in (1.0, 6.0, 11.0, 16.0, 21.0):
        slices.note_use(NEIGHBOUR, now)

    assert slices.next_part(old, 81.0) is not old
    assert slices.next_part(old, 82.0) is old


def test_a_long_prompt_is_cut_beside_streams_of_its_own_key(batch: Batch) -> None:
    engine = Engine(batch, is_shared=False)
    stream = generation(prompt(next(SEEDS), 8), max_new_tokens=64)
    engine.waiting.add(stream)
    engine.step()
    long, fitting = (generation(prompt(next(SEEDS), num)) for num in (NUM_LONG, 256))

    engine.run(long, fitting)
    engine.finish(stream)

    (*slices, last) = sorted({each for each in engine.computed if each > 256})
    assert (len(slices) > 8, last) == (True, NUM_LONG)
    assert max(later - earlier for earlier, later in pairwise(slices)) < 256
    assert 256 in engine.computed


def test_prompts_of_a_key_that_repeats_one_do_not_make_others_seem_short(batch: Batch) -> None:
    engine = Engine(batch)
    for _ in range(30):
        engine.run(generation(prompt(200, 64), lane=NEIGHBOUR, max_new_tokens=1))
    for seed in range(8):
        engine.waiting.add(generation(prompt(210 + seed)))
    engine.waiting._slices._used_at.clear()  # as if the key were alone again

    assert list(engine.waiting.admit()) == []

    assert len(batch) == 1
    assert batch.num_to_prefill == NUM_LONG


def test_a_slice_takes_no_longer_than_one_and_a_half_rests_of_its_step() -> None:
    def affordable(step_s: Callable[[int], float]) -> int:
        times = StepTimes()
        for _ in range(100):
            for num_tokens in (0, 32, 40, 64):
                times.note(num_tokens, step_s(num_tokens))
        return times.num_affordable(32, 256)

    assert affordable(lambda num: 0.001 + num * 0.0002) == 32  # a processor and a small model
    assert affordable(lambda num: 0.1 + num * 0.001) == pytest.approx(150, abs=1)
    assert affordable(lambda _: 0.02) == 256  # a device that computes both as fast

    times = StepTimes()
    for _ in range(100):
        times.note(32, 0.01)
    assert times.num_affordable(32, 256) == 32, "steps of one size have no line"


@pytest.mark.smoke
@table(
    "values",
    [
        {},
        {"sampling": Sampling(temperature=0.9, seed=5)},
        {"sampling": Sampling(repetition_penalty=1.2)},
        {"cache_key": bytes(range(16))},
    ],
)
def test_a_prompt_in_slices_has_the_same_answer_and_the_same_counts(pipeline, values):
    seed = sum(map(ord, str(values)))
    cut, again = (generation(prompt(seed), **values) for _ in range(2))
    for batch in emptied(pipeline):
        engine = Engine(batch)
        engine.run(cut)
        num_used = cut.num_used_tokens
        Engine(batch, is_shared=False).run(again)

    assert len(engine.computed) >= 8
    assert all(later - earlier <= 64 for earlier, later in pairwise(engine.computed))
    assert cut.tokens == again.tokens
    assert cut.num_cached == 0
    assert num_used == NUM_LONG + 8
    assert (again.num_cached or 0) >= NUM_LONG - 32


def lost_generation(ids: list[int], known: list[int], **values: Any) -> Generation:
    """A generation with `known` tokens of another engine."""
    new = generation(ids, max_new_tokens=len(known) + 8, **values)
    submit = structs.replace(new.submit, known=Known(array("i", known).tobytes(), False))
    return Generation.of(None, submit)


def test_answers_of_a_lost_engine_are_cut_and_do_not_wait_for_a_long_prompt(batch: Batch) -> None:
    ids, known = prompt(300, 1100), prompt(301, 800)
    cut = lost_generation(ids, known)
    engine = Engine(batch)
    engine.run(cut)
    assert len(engine.computed) >= 8
    assert all(later - earlier <= 64 for earlier, later in pairwise(engine.computed))
    again = generation(ids + known)
    Engine(batch, is_shared=False).run(again)

    assert cut.tokens[len(known) :] == again.tokens
    assert len(cut.tokens) == len(known) + 8
    assert cut.num_used_tokens == len(ids) + len(known) + 8

    # Gateways submit them in any order, and no key has asked this engine before.
    engine = Engine(batch, is_shared=False)
    long = lost_generation(prompt(310, 1100), prompt(311, 800))
    short = lost_generation(prompt(312, 20), prompt(313, 8), lane=NEIGHBOUR)
    engine.waiting.add(long)
    engine.step()
    engine.waiting.add(short)
    num_known = len(short.tokens)
    while short not in engine.ended:
        num_before = len(short.tokens)
        engine.step()
        if num_before > num_known:
            assert len(short.tokens) > num_before  # each step has a token of it

    assert engine.num_steps <= 12  # 8 tokens, and a step or two until the first
    assert long not in engine.ended
    engine.finish(long)


def test_what_leaves_or_fails_takes_its_slice_along_and_comes_back_whole(batch: Batch) -> None:
    engine = Engine(batch)
    leaving = generation(prompt(60))
    engine.waiting.add(leaving)
    assert list(engine.waiting.admit()) == []
    assert len(batch) == 1

    engine.waiting.discard(leaving)

    assert len(batch) == 0
    assert not engine.waiting._slices._owners
    again = generation(prompt(60), max_new_tokens=4)
    engine.run(again)
    assert len(again.tokens) == 4

    long = generation(prompt(70))
    engine.waiting.add(long)
    assert list(engine.waiting.admit()) == []
    [beginning] = engine.waiting._slices._owners
    batch.remove(beginning)

    assert engine.waiting.end_slice(beginning)
    engine.finish(long)

    assert long.is_uncut
    assert len(long.tokens) == 8

    paused = generation(prompt(320), max_new_tokens=40)
    engine.waiting.add(paused)
    while len(paused.tokens) < 4:
        engine.step()
    batch.remove(paused)
    paused.rewind()

    assert engine.waiting._slices.next_part(paused, time.monotonic()) is paused
