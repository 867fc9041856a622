"""Long prompts in slices, so that another key's prompt need not wait for a whole long prompt.

While several keys use the engine, the batch first gets the beginning of a long prompt, as a
generation of one token that no client gets, then a longer beginning, and at last the prompt. Each
part finds the part before in the prefix cache, and between two the fair queue decides who is next.

Slices double in length while the cache has all of the last slice, as of a long chat. If the cache
has lost a slice, the rest is added as a whole. The answer of a lost engine is cut, also if no other
key has asked this engine yet: gateways submit all such answers at once. A generation that left the
batch and comes back is not cut, because the cache has most of it.
"""

from collections.abc import Set
from typing import Final

from vinery_serving.core.request import Sampling
from vinery_serving.engine.batch import Batch
from vinery_serving.engine.fair_queue import Lane
from vinery_serving.engine.generation import Generation
from vinery_serving.engine.prefix_cache import BLOCK
from vinery_serving.transport.messages import Submit

# Prompts are cut while another key has used the engine within this time: a person who chats thinks
# that long between two messages.
_SHARED_S: Final = 60.0
_MAX_SLICES: Final = 64  # each slice costs the hash of all tokens before it


class Slices:
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
        if is_whole or not is_shared or not self._batch.caches_exactly:
            return generation
        prompt_ids, _ = generation.next_prompt()
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
