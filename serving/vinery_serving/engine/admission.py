"""Which generations wait for the batch, and which generation joins next. Lanes share the batch by
turns (`engine/fair_queue`). While several lanes use the engine, no lane gets more than `max_share`
of the slots; with `strict_share` no lane ever does."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Set
from functools import cache
from typing import Final

from vinery_serving.core.request import Sampling
from vinery_serving.engine.batch import Batch
from vinery_serving.engine.cached_prompts import CachedPrompts
from vinery_serving.engine.estimates import AnswerTimes
from vinery_serving.engine.fair_queue import FairQueue, Lane, num_before, yielding_lane
from vinery_serving.engine.generation import FailedGeneration, Generation
from vinery_serving.engine.options import EngineOptions
from vinery_serving.engine.prefix_cache import BLOCK
from vinery_serving.transport.messages import Load, Submit

_REPORT_INTERVAL_S: Final = 0.1  # how often gateways learn of the load, at most
_CALM_AFTER_S: Final = 2.0  # after how long without a change of the load the engine is calm
_LOW_SHARE: Final = 0.05  # of the time
_LOW_HOLD_S: Final = 0.02  # a gateway reads a short request in a few milliseconds, or refuses it
_LOW_WINDOW_S: Final = 3.0  # in one piece: shorter ones would only move work in and out
# Prompts are cut while another key has used the engine within this time: a person who chats thinks
# that long between two messages.
_SHARED_S: Final = 60.0
_MAX_SLICES: Final = 256  # each slice costs the hash of all tokens before it


class Admission:
    """The generations that wait for a slot of a batch."""

    def __init__(self, options: EngineOptions, batch: Batch) -> None:
        self._options = options
        self._batch = batch
        self._queue: FairQueue[Generation] = FairQueue(_cost)
        self._low = LowTier(batch, FairQueue(_cost))
        self._answer_times = AnswerTimes()
        self._slices = Slices(batch)
        self._next_report_at = 0.0
        self._last_report: Load | None = None
        self._reported_at = 0.0

    def __len__(self) -> int:
        return len(self._queue) + len(self._low.queue)

    def _queue_of(self, submit: Submit) -> FairQueue[Generation]:
        return self._low.queue if submit.is_low_tier else self._queue

    def add(self, generation: Generation) -> None:
        """Add behind all of the same lane and priority. A generation with tokens of a lost engine
        has waited before, and comes in front."""
        submit = generation.submit
        if not submit.is_low_tier:
            self._slices.note_use(submit.lane, time.monotonic())
            self._low.held_until = 0.0
        if generation.num_known:
            self.put_back(generation)
        else:
            self._queue_of(submit).add(generation, submit.lane, submit.priority)

    def expect(self) -> None:
        """Note that a request which is not of the low tier will come soon."""
        self._low.held_until = time.monotonic() + _LOW_HOLD_S

    @property
    def held_s(self) -> float:
        """For how long all that waits must wait at least."""
        return 0.0 if self._queue else max(0.0, self._low.held_until - time.monotonic())

    def put_back(self, generation: Generation) -> None:
        """Add a generation that has run before, in front of all of the same lane and priority."""
        submit = generation.submit
        self._queue_of(submit).put_back(generation, submit.lane, submit.priority)

    def discard(self, generation: Generation) -> None:
        self._queue_of(generation.submit).discard(generation)
        self._slices.discard(generation)

    def end_slice(self, beginning: Generation) -> bool:
        """Put back the owner of an ended or failed slice. Returns False if there is none."""
        owner = self._slices.end(beginning)
        if owner is not None:
            self.put_back(owner)
        return owner is not None

    def settle(self, generation: Generation) -> None:
        """Charge the lane of an ended generation the difference of real and expected cost."""
        if self.end_slice(generation):
            return
        if generation.is_charged:
            num_charged = generation.num_expected_tokens - generation.num_to_charge
            num_more = generation.num_used_tokens - num_charged
            submit = generation.submit
            self._queue_of(submit).charge(submit.lane, num_more)
            generation.is_charged = False
            has_run = generation.first_step_at is not None and generation.tokens
            if has_run and not submit.is_low_tier:
                self._answer_times.note(time.monotonic() - (generation.first_step_at or 0.0))

    def has_low_room(self) -> bool:
        """Whether one more of the low tier may wait."""
        return len(self._low.queue) < self._options.max_waiting

    def has_room(self, lane: Lane, checking: Counter[Lane]) -> bool:
        """Whether one more of this lane may wait. Beside `max_waiting` there are the slots that
        the next steps will fill. `checking` counts requests in grammar checks, by lane."""
        num_free = self._num_free
        num_own = self._queue.num_of(lane) + checking[lane]
        num_all = len(self._queue) + checking.total()  # the low tier holds up nobody
        return (
            num_own < self._options.max_waiting_per_key + num_free
            and num_all < self._options.max_waiting + num_free
        )

    def last_to_yield(self, lane: Lane, checking: Counter[Lane]) -> Generation | None:
        """Return the generation that must leave to make room for `lane`; None: `lane` gets none."""
        num_own = self._queue.num_of(lane) + checking[lane]
        if num_own >= self._options.max_waiting_per_key + self._num_free:
            return None
        return self._queue.last_to_yield(lane)

    def check_wait(self, submit: Submit) -> int | None:
        """Return after how many seconds the client must ask again, because the wait would be too
        long; None: the request may wait."""
        if not submit.max_queue_s:
            return None
        num_ahead = num_before(submit.lane, self._queue.nums())
        late_s = self._answer_times.wait_s(num_ahead, len(self._batch)) - submit.max_queue_s
        return max(1, math.ceil(late_s)) if late_s > 0 else None

    def admit(self) -> Iterator[FailedGeneration]:
        """Add to the batch what the next step can compute. Yields what the pipeline refuses."""
        now = time.monotonic()
        may_run_low = self._low.may_run(now, is_other_waiting=bool(self._queue))
        if not may_run_low:
            while (low := self._batch.preempt(None)) is not None:
                self.put_back(low)
        yield from self._admit_from(self._queue, now, is_low=False)
        if may_run_low and not self._queue:
            yield from self._admit_from(self._low.queue, now, is_low=True)

    def report(self, cached: CachedPrompts) -> Load | None:
        now = time.monotonic()
        if now < self._next_report_at:
            return None
        self._next_report_at = now + _REPORT_INTERVAL_S
        has_low_tier = bool(self._low.queue) or self._batch.runs_low_tier
        load = Load(len(self._batch) + len(self), *cached.changes(), has_low_tier)
        if load == self._last_report:
            return None
        self._last_report, self._reported_at = load, now
        return load

    @property
    def is_calm(self) -> bool:
        """Whether the load has not changed for a while, so that a change may be reported later."""
        return time.monotonic() - self._reported_at > _CALM_AFTER_S

    def _admit_from(
        self, queue: FairQueue[Generation], now: float, *, is_low: bool
    ) -> Iterator[FailedGeneration]:
        """Work of the low tier takes free slots alone."""
        slices, batch = self._slices, self._batch
        while batch.has_prefill_room(is_shared=is_low) and (batch.has_free_slot or not is_low):
            held_back = slices.lanes if is_low else self._held_back(now)
            first = queue.first_except(held_back, self._waits_to_encode())
            if first is None:
                return
            lane = first.submit.lane
            is_shared = is_low or slices.is_shared(lane, now)
            if not batch.has_prefill_room(is_shared=is_shared):
                return
            beginning = slices.next_part(first, now) if batch.has_free_slot else first
            if beginning is None or not batch.may_join(beginning):
                return
            preempted = None
            if not batch.has_free_slot and (preempted := self._preempt_for(lane)) is None:
                return
            queue.take(first)
            if not is_low:
                slices.note_use(lane, now)
            if preempted is not None:
                self.put_back(preempted)
            failed = self._add_next(beginning, first)
            first.is_charged = True
            if failed is not None:
                yield failed

    def _waits_to_encode(self) -> Callable[[Generation], bool]:
        """Return the test for generations that others pass, also others of the same lane."""
        may_encode = cache(self._batch.may_encode)
        return lambda generation: generation.has_media and not may_encode()

    def _add_next(self, beginning: Generation, generation: Generation) -> FailedGeneration | None:
        num_charged, generation.num_to_charge = _cost(generation), 0
        failed = self._batch.add(beginning)
        if beginning is generation:
            return failed
        if failed is not None:
            return self._batch.add(generation)
        self._slices.begin(beginning, generation)
        # The lane pays for each slice in turn.
        num_left = generation.num_expected_tokens - len(beginning.prompt_ids)
        generation.num_to_charge = min(num_left, num_charged)
        submit = generation.submit
        self._queue_of(submit).charge(submit.lane, -generation.num_to_charge)
        return None

    def _held_back(self, now: float) -> Set[Lane]:
        """Return the lanes with a slice in the batch, and the lanes with as many running slots as a
        key may have: with `strict_share` always, else while other lanes use the engine."""
        if not self._queue:
            return frozenset()
        share, is_strict = self._options.max_running_of_key, self._options.strict_share
        return self._slices.lanes | {
            lane
            for lane, num in self._batch.running_lanes().items()
            if num >= share and (is_strict or self._slices.is_shared(lane, now))
        }

    @property
    def _num_free(self) -> int:
        return max(0, self._options.max_running - len(self._batch))

    def _preempt_for(self, lane: Lane) -> Generation | None:
        """Take a generation out of the lane with the most slots, if these exceed the fair share
        beside `lane`."""
        if not self._batch.is_full:
            return None
        if (low := self._batch.preempt(None)) is not None:
            return low
        share = self._options.max_running_of_key
        yielding = yielding_lane(lane, self._batch.running_lanes(), share)
        return None if yielding is None else self._batch.preempt(yielding)


class Slices:
    """Long prompts in slices, so that neither streams nor another key wait for a whole one.

    While several keys use the engine, or there are streams, the batch first gets the beginning of a
    long prompt, as a generation of one token that no client gets, then a longer beginning, and at
    last the prompt. Each part finds the part before in the prefix cache, and between two the fair
    queue decides who is next. Slices double in length while the cache has all of the last slice, as
    of a long chat.

    If the cache has lost a slice, the rest is added as a whole. The answer of a lost engine is cut,
    also if no other key has asked this engine yet: gateways submit all such answers at once. A
    generation that left the batch and comes back is not cut: the cache has most of it.
    """

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._owners: dict[Generation, Generation] = {}  # by slice
        # When the last two lanes used the engine: for any lane, one of the two is another lane.
        self._used_at: dict[Lane, float] = {}

    def note_use(self, lane: Lane, now: float) -> None:
        self._used_at.pop(lane, None)
        self._used_at[lane] = now
        if len(self._used_at) > 2:
            del self._used_at[next(iter(self._used_at))]

    @property
    def lanes(self) -> Set[Lane]:
        """Return the lanes with a slice in the batch. Such a lane must not begin another prompt:
        the cache may be too small for the beginnings of several."""
        return {owner.submit.lane for owner in self._owners.values()}

    def next_part(self, generation: Generation, now: float) -> Generation | None:
        """Return a slice of the prompt, or the generation itself; None: the next step has no room
        for a slice."""
        # Each slice of a prompt would encode its pictures again.
        is_cut_before = generation.is_uncut or generation.was_added
        is_whole = is_cut_before or generation.must_score or generation.has_media
        is_low = generation.submit.is_low_tier  # others may arrive
        is_shared = generation.num_known or is_low or self.is_shared(generation.submit.lane, now)
        prompt_ids, _ = generation.next_prompt()
        is_cut = is_shared or self._batch.would_hold_up_streams(len(prompt_ids))
        if is_whole or not is_cut or not self._batch.caches_exactly:
            return generation
        num_left = len(prompt_ids) - generation.num_sliced
        num_tokens = self._batch.num_slice_tokens(generation.submit.lane)
        length = max(num_tokens, len(prompt_ids) // _MAX_SLICES, generation.num_fully_cached)
        length = length // BLOCK * BLOCK
        if num_left <= length + BLOCK:
            return generation
        if not num_tokens:
            return None
        whole = generation.submit
        submit = Submit(
            *(0, b"", Sampling(), 1, whole.deadline_s),
            ignore_eos=True,
            cache_key=whole.cache_key,
            lane=whole.lane,
            is_low_tier=whole.is_low_tier,
        )
        prompt_ids = prompt_ids[: generation.num_sliced + length]
        beginning = Generation(None, submit, prompt_ids, generation.vision)
        beginning.num_sliced = generation.num_sliced
        return beginning

    def is_shared(self, lane: Lane, now: float) -> bool:
        others = (at for each, at in self._used_at.items() if each != lane)
        return any(now - at <= _SHARED_S for at in others)

    def begin(self, beginning: Generation, owner: Generation) -> None:
        self._owners[beginning] = beginning.sliced_from = owner

    def end(self, beginning: Generation) -> Generation | None:
        """Return the owner of the ended slice, to be put back; None: no slice, or no owner."""
        owner = self._owners.pop(beginning, None)
        if owner is None:
            return None
        num_before, num_cached = owner.num_sliced, beginning.num_cached
        if not beginning.tokens or num_cached is None or num_cached < num_before - BLOCK:
            owner.is_uncut = True  # it failed, or the cache has lost the slice before
            return owner
        if owner.first_step_at is None or owner.num_fully_cached:
            owner.num_cached = num_cached
        owner.first_step_at = owner.first_step_at or beginning.first_step_at
        owner.num_sliced = len(beginning.prompt_ids)
        # At least a block is computed, so nothing is known of a slice that is no longer.
        is_cached = num_cached >= max(num_before + 1, owner.num_sliced - BLOCK)
        owner.num_fully_cached = 2 * (owner.num_sliced - num_before) if is_cached else 0
        return owner

    def discard(self, owner: Generation) -> None:
        for beginning in [beginning for beginning, each in self._owners.items() if each is owner]:
            del self._owners[beginning]
            self._batch.remove(beginning)


class LowTier:
    """Work for which nobody waits at a connection: background responses, and requests of the tier
    flex.

    It runs while nothing else does, and leaves the batch at the step after another request arrives.
    So that it never starves, it also runs beside others for a few seconds of each minute.
    """

    def __init__(self, batch: Batch, queue: FairQueue[Generation]) -> None:
        self.queue = queue
        self._batch = batch
        self._credit_s = 0.0
        self._looked_at = 0.0
        self._window_until = 0.0
        self.held_until = 0.0  # another request comes soon, or has not come

    def may_run(self, now: float, *, is_other_waiting: bool) -> bool:
        """Whether this work may be in the next step."""
        elapsed_s, self._looked_at = now - self._looked_at, now
        if not (is_other_waiting or self._batch.runs_others or now < self.held_until):
            return True
        if now < self._window_until:
            return True
        if self.queue or self._batch.runs_low_tier:
            self._credit_s += _LOW_SHARE * min(elapsed_s, _LOW_WINDOW_S)
        if self._credit_s < _LOW_WINDOW_S:
            return False
        self._credit_s, self._window_until = 0.0, now + _LOW_WINDOW_S
        return True


def _cost(generation: Generation) -> int:
    is_charged = generation.is_charged
    return generation.num_to_charge if is_charged else generation.num_expected_tokens
