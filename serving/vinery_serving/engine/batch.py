"""The generations inside the pipeline, and their recovery from a failed step. An exception in a
step names no guilty generation. So all are taken out. A generation with new tokens since it was
last added is innocent and is added again at once. The others, the suspects, follow one at a time,
and a suspect that fails a step on its own fails."""

import logging
import math
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from vinery_serving.engine.estimates import CachedParts, EncodingPace, StepTimes
from vinery_serving.engine.fair_queue import Lane
from vinery_serving.engine.generation import (
    FailedGeneration,
    GeneratedTokens,
    Generation,
    advance,
    within_grant,
)
from vinery_serving.engine.logits_handler import LogitsHandler, PromptWasCached, StepView
from vinery_serving.engine.pipeline import Pipeline
from vinery_serving.engine.prefix_cache import BLOCK, PrefixBlocks, is_exposed
from vinery_serving.engine.step_layout import UnknownStepLayout, locate_spans
from vinery_serving.engine.supervision import PipelineBroken
from vinery_serving.transport.messages import FINISH_STOP

logger = logging.getLogger(__name__)

# How often the KV cache may be too small for a generation before the generation fails.
_MAX_DROPS: Final = 3
# After more failed steps in a row the pipeline itself is taken to be broken.
_MAX_FAILED_STEPS: Final = 200
# How often a generation yields its slot. Its prompt may have to be computed again each time.
_MAX_PREEMPTIONS: Final = 3
# After how many tokens of prompts no further prompt joins a step while several lanes share the
# engine. The next request waits for the rest of such a step: a step of 256 tokens took as long as
# ten answers' first tokens.
_SHARED_TOKENS: Final = 64
_LOGITS_FAILED: Final = (
    "The engine could not do what this request asks of its token probabilities. Try it again "
    "without the logits processors, logprobs or token lists."
)
_CANNOT_SALT: Final = (
    "The engine cannot run this request with no_repeat_ngram_size 1 just now. Use 2 or more, or "
    "leave it out."
)
_FAILED: Final = "The engine could not run this request."
_CACHE_TOO_SMALL: Final = (
    "The engine's key-value cache is too small for this request. Shorten the prompt or "
    "lower max_tokens, or ask the administrator for a larger cache_size_gb."
)


@dataclass(frozen=True, slots=True)
class StepResult:
    begun: list[Generation] = field(default_factory=list)
    generated: list[GeneratedTokens] = field(default_factory=list)
    failed: list[FailedGeneration] = field(default_factory=list)


class Batch:
    """Up to `capacity` generations, in the order in which they were added."""

    def __init__(self, pipeline: Pipeline, capacity: int, *, num_step_tokens: int = 256) -> None:
        """`num_step_tokens` is how many tokens the pipeline computes in a step, at most."""
        self._pipeline = pipeline
        self._capacity = capacity
        self._num_step_tokens = num_step_tokens
        self._shared_tokens = min(_SHARED_TOKENS, num_step_tokens)
        self._times = StepTimes()
        self._num_prompt_tokens = 0  # that the present step computes
        self._limit = capacity  # lower for a while after the KV cache was too small
        self._running: list[Generation] = []
        # Running, and with cache blocks that another prompt could still get.
        self._exposed: list[Generation] = []
        self._suspects: deque[Generation] = deque()
        self._blocks = PrefixBlocks() if pipeline.has_cache else None
        self._cached = CachedParts()
        self._encoding = EncodingPace()
        self._num_failed_in_row = 0
        self.num_recoveries = 0
        # Called before pictures are encoded, which may take long.
        self.on_encoding: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        return len(self._running) + len(self._suspects)

    @property
    def has_free_slot(self) -> bool:
        """Whether one more may be added. None may while there are suspects."""
        return not self._suspects and len(self._running) < self._limit

    @property
    def is_full(self) -> bool:
        return not self._suspects and len(self._running) >= self._limit

    def has_prefill_room(self, *, is_shared: bool = False) -> bool:
        """Whether the next step could compute tokens of one more prompt, or should: while several
        lanes share the engine, steps stay short. The pipeline computes prompts in the order in
        which they were added. A prompt that is added later therefore loses nothing, and until then
        another lane may come before it."""
        return self.num_to_prefill < (self._shared_tokens if is_shared else self._num_step_tokens)

    @property
    def num_to_prefill(self) -> float:
        num_tokens = 0.0
        for generation in self._exposed:
            if generation.is_decoding:
                continue
            num_added = len(generation.added_ids)
            if generation.first_chunk_end is None and generation.has_run:
                num_tokens += (num_added - 1) % BLOCK + 1  # the cache has its full blocks
            elif generation.first_chunk_end is None:  # no step had it
                uncached = self._cached.uncached(generation.submit.lane)
                num_tokens += (num_added - generation.num_sliced) * uncached
            else:
                num_done = max(generation.num_prefilled, generation.num_assumed_prefilled)
                num_tokens += num_added - num_done
        return num_tokens

    @property
    def caches_exactly(self) -> bool:
        """Whether prompts find their beginnings in the prefix cache, and the hook sees how much."""
        is_seen = self._pipeline.has_logits_hook and not self._pipeline.speculates
        return self._blocks is not None and is_seen

    def num_slice_tokens(self, lane: Lane) -> int:
        """Return how many tokens a slice of this lane's prompt may have, with cached tokens; 0: the
        next step has no room."""
        num_left = self._times.num_affordable(BLOCK, self._num_step_tokens) - self.num_to_prefill
        return int(num_left / self._cached.uncached(lane)) if num_left >= BLOCK else 0

    def would_hold_up_streams(self, num_prompt_tokens: int) -> bool:
        """Whether the streams here would wait for several full steps of a prompt."""
        is_long = num_prompt_tokens > self._num_step_tokens
        return is_long and any(each.is_decoding for each in self._running)

    def running_lanes(self) -> Counter[Lane]:
        """Return the slots by lane, without those of the low tier."""
        counted = (each for each in self._running if each.connection is not None)
        return Counter(each.submit.lane for each in counted if not each.submit.is_low_tier)

    @property
    def runs_others(self) -> bool:
        """Whether there is work of another than the low tier."""
        return any(not each.submit.is_low_tier for each in self._running)

    @property
    def runs_low_tier(self) -> bool:
        return any(each.submit.is_low_tier for each in self._running)

    def preempt(self, lane: Lane | None) -> Generation | None:
        """Take a generation of this lane out, or of the low tier, to be added again later; None if
        none can be. The generation continues where it was. One with few tokens loses least."""
        candidates = [
            each
            for each in self._running
            if (None if each.submit.is_low_tier else each.submit.lane) == lane
            and each.is_decoding
            and each.connection is not None
            and each.submit.beams is None
            and not each.is_abandoned
            and each.num_preempted < _most_preemptions(each)
        ]
        if not candidates:
            return None
        # Pictures would be encoded again.
        generation = min(
            candidates, key=lambda each: (each.has_media, each.must_replay, len(each.tokens))
        )
        generation.num_preempted += 1
        self.remove(generation)
        generation.rewind()
        return generation

    def may_encode(self) -> bool:
        return self._encoding.may_encode(
            time.monotonic(),
            num_streams=sum(each.is_decoding for each in self._running),
            is_idle=not self._running,
        )

    def may_join(self, generation: Generation) -> bool:
        """Whether the generation may be added before the next step, and not only before a later."""
        # GenAI 2026.4.1 sends a draft token unverified where a full step ends one of two prompts.
        if self._pipeline.asks_draft and any(not each.is_decoding for each in self._running):
            return False
        if generation.has_media:
            assert self._pipeline.vision is not None
            # Tokens that must not be divided between two steps fit into the next step, or wait.
            num_undivided = self._pipeline.vision.num_undivided(generation.submit.media)
            is_too_much = num_undivided + self._num_due_tokens > self._num_step_tokens
            if not self.may_encode() or (num_undivided and is_too_much):
                return False
        if self._blocks is None or generation.must_score:
            return True  # a prompt that is scored uses no cached block
        prompt_ids = generation.identities(generation.next_prompt()[0])
        beside = (each.prefill() for each in self._exposed if not each.is_echoed)
        return self._blocks.can_prefill(prompt_ids, beside)

    def forget_cache(self) -> None:
        """Note that the model was loaded again."""
        self._blocks = PrefixBlocks() if self._pipeline.has_cache else None

    @property
    def has_work(self) -> bool:
        return len(self) > 0 or self._pipeline.has_work

    @property
    def num_next_tokens(self) -> int:
        num_tokens = self._num_due_tokens + len(self._suspects)
        return min(num_tokens, self._pipeline.max_step_tokens) or 1

    @property
    def _num_due_tokens(self) -> int:
        prefilling = (each for each in self._exposed if not each.is_decoding)
        num_prefill = sum(len(each.added_ids) - each.num_prefilled for each in prefilling)
        return sum(each.num_beams for each in self._running) + num_prefill

    def add(self, generation: Generation) -> FailedGeneration | None:
        """Add a generation to the pipeline. Returns a failure if the pipeline refuses."""
        submit, must_score = generation.submit, generation.must_score
        prompt_ids, max_new_tokens = generation.next_prompt()
        cache_key = submit.cache_key
        identities = generation.identities(prompt_ids)
        if self._blocks is not None:
            cache_key = self._blocks.key_for(identities, cache_key)
        # GenAI writes to the logits of n-grams of length 1 anywhere in the prompt, and salted ids
        # have no logits. GenAI never finds a longer n-gram that begins inside the salted ids.
        if cache_key is not None and submit.beams and submit.beams.no_repeat_ngram_size == 1:
            return FailedGeneration(generation, "engine_error", _CANNOT_SALT)
        if generation.has_media:
            self.on_encoding()
        begun_at = time.monotonic()
        try:
            generation.handle = self._pipeline.add(
                prompt_ids,
                submit,
                max_new_tokens,
                cache_key=cache_key,
                echo=must_score,
                vision=generation.vision,
                is_scored=generation.is_picture_test,
            )
        except RuntimeError as error:
            return FailedGeneration(generation, "invalid_value", _last_line(error))
        if generation.has_media:
            num_steps = -(-len(prompt_ids) // self._num_step_tokens)
            now = time.monotonic()
            self._encoding.note_encoding(num_steps, now)
            generation.encode_s = (generation.encode_s or 0.0) + now - begun_at
        applies_penalty = self._pipeline.leaves_penalty(submit, cache_key)
        samples = self._pipeline.leaves_sampling(submit)
        if generation.logits is None and (applies_penalty or samples):
            generation.logits = LogitsHandler(submit, generation.prompt_ids)
        if generation.logits is not None:
            generation.logits.applies_penalty, generation.logits.samples = applies_penalty, samples
        generation.added_ids, generation.is_echoed = prompt_ids, must_score
        generation.max_draft_tokens = self._pipeline.max_draft_tokens(submit)
        generation.draft_width = self._pipeline.draft_width(submit)
        generation.first_chunk_end = None
        generation.num_prefilled = generation.num_assumed_prefilled = 0
        self._running.append(generation)
        self._exposed.append(generation)
        if self._blocks is not None and not must_score:
            self._blocks.note_added(identities)
        return None

    def remove(self, generation: Generation) -> None:
        if generation in self._running:
            if self._must_finish_prefill(generation):
                generation.is_abandoned = True
                return
            self._running.remove(generation)
            self._exposed = [each for each in self._exposed if each is not generation]
            self._cancel(generation)
        elif generation in self._suspects:
            self._suspects.remove(generation)

    def step(self) -> StepResult:
        """Advance every generation. Raises PipelineBroken."""
        result = StepResult()
        is_clear = all(each.is_proven for each in self._running)
        has_slot = is_clear and len(self._running) < self._limit
        if self._suspects and has_slot and self.may_join(self._suspects[0]):
            self._add_again(self._suspects.popleft(), result)
        now = time.monotonic()
        for generation in self._exposed:
            if generation.first_step_at is None:
                generation.first_step_at = now
                result.begun.append(generation)
        needs_hook = bool(self._exposed) or self._pipeline.speculates
        needs_hook = needs_hook or any(each.needs_hook for each in self._running)
        self._num_prompt_tokens = 0
        width, num_streams = self._draft_width(), len(self._running)
        try:
            self._pipeline.step(self._on_logits if needs_hook else None)
        except RuntimeError as error:
            self._recover(_last_line(error), result)
            return result
        finally:
            self._encoding.note_step()
        self._num_failed_in_row = 0
        self._times.note(self._num_prompt_tokens, time.monotonic() - now)
        if not self._pipeline.has_logits_hook:
            self._assume_prefilling()
            self._assume_progress()
        self._collect(result)
        if width is not None and result.generated:
            num_tokens = sum(len(new.token_ids) for new in result.generated)
            took_s = time.monotonic() - now
            self._pipeline.speculation.note(width, num_streams, num_tokens, took_s)
        if not self._pipeline.supports_cache_salt:  # else none is ever abandoned
            result.generated[:] = [e for e in result.generated if not e.generation.is_abandoned]
            result.failed[:] = [e for e in result.failed if not e.generation.is_abandoned]
        return result

    def _draft_width(self) -> int | None:
        """Return the width of all generations, see `Speculation`; None: they differ, or a prompt is
        computed."""
        widths = {each.draft_width if each.is_decoding else None for each in self._running}
        return widths.pop() if len(widths) == 1 else None

    def _assume_prefilling(self) -> None:
        """Without the hook it is unknown how much of a prompt was computed: at least a token."""
        for generation in self._exposed:
            generation.first_chunk_end = generation.first_chunk_end or 1

    def _assume_progress(self) -> None:
        """Without the hook: decoding comes first, then prompts in the order of their addition."""
        num_left = self._num_step_tokens - sum(each.is_decoding for each in self._running)
        for generation in self._exposed:
            if not generation.is_decoding:
                num_done = generation.num_assumed_prefilled
                num_new = max(0, min(num_left, len(generation.added_ids) - num_done))
                generation.num_assumed_prefilled += num_new
                num_left -= num_new

    def _on_logits(self, view: StepView) -> None:
        running = self._running
        vision = self._pipeline.vision
        positions = view.positions if vision is None else vision.positions(view.positions)
        try:
            token_ids, num_rows = view.token_ids.tolist(), len(view.logits)
            spans = locate_spans(positions.tolist(), token_ids, num_rows, running)
        except UnknownStepLayout as error:
            for generation in running:
                generation.failure = None if generation.logits is None else error
            self._assume_prefilling()
            return
        for generation, span in zip(running, spans, strict=True):
            if span is None:
                continue
            # A slice has counted no more than its own tokens (see `engine/admission`).
            if generation.num_cached is None or generation.num_fully_cached:
                generation.num_cached, generation.num_fully_cached = span.start, 0
                known = generation.num_sliced
                num_unknown, num_cached = len(generation.added_ids) - known, span.start - known
                lane = generation.submit.lane
                self._cached.note(lane, num_cached=num_cached, num_tokens=num_unknown)
            if not generation.is_decoding:
                generation.num_prefilled = span.start + span.num_tokens
                generation.first_chunk_end = generation.first_chunk_end or generation.num_prefilled
                self._num_prompt_tokens += span.num_tokens
            if generation.submit.beams is not None:
                generation.is_beam_extended = bool(span.rows)
            elif generation.is_decoding:
                generation.num_drafted = span.num_tokens - 1
            if generation.logits is not None:
                tokens = generation.generated if generation.num_to_replay else generation.tokens
                try:
                    generation.logits.handle(view, span, generation, tokens)
                except Exception as error:  # an administrator's processor may raise anything
                    generation.failure = error

    def _collect(self, result: StepResult) -> None:
        ended: list[Generation] = []
        dropped: list[Generation] = []
        for generation in self._running:
            assert generation.handle is not None
            is_beam_search = generation.submit.beams is not None
            output = None if is_beam_search else generation.handle.read()
            if generation.failure is not None:
                self._cancel(generation)
                ended.append(generation)
                self._settle_failure(generation, result)
            elif is_beam_search and self._collect_beams(generation, result):
                ended.append(generation)
            elif output is not None:
                new = advance(generation, *output)
                if isinstance(new, FailedGeneration):
                    self._cancel(generation)
                    result.failed.append(new)
                    ended.append(generation)
                elif new is not None:
                    granted = within_grant(new)
                    if granted is not new:
                        self._cancel(generation)
                        generation.is_paused = granted.finish is None
                    result.generated.append(granted)
                    if granted.finish is not None or generation.is_paused:
                        ended.append(generation)
            elif generation.handle.is_dropped:
                dropped.append(generation)
        if ended:
            self._running = [each for each in self._running if each not in ended]
            self._limit = min(self._capacity, self._limit + len(ended))
        if dropped:
            self._take_back(dropped, result)
        if self._exposed:
            self._update_exposed()

    def _update_exposed(self) -> None:
        for generation in self._exposed:
            if generation.is_abandoned and generation.is_decoding:
                self.remove(generation)
        self._exposed = [
            each
            for each in self._exposed
            if each in self._running and is_exposed(len(each.added_ids), len(each.generated))
        ]

    def _collect_beams(self, generation: Generation, result: StepResult) -> bool:
        """Take the sequences of a beam search. Returns whether the search has ended."""
        assert generation.handle is not None
        if generation.is_beam_extended:
            generation.is_beam_extended = False
            generation.is_proven = True
            generation.generated.append(-1)  # only the pipeline knows the token
        beams = (generation, *generation.other_beams)
        outputs = generation.handle.read_beams(len(beams))
        for beam, (token_ids, finish) in zip(beams, outputs, strict=False):
            result.generated.append(GeneratedTokens(beam, token_ids, finish, []))
        if outputs:
            # A search may end with fewer sequences than it was asked for.
            for beam in beams[len(outputs) :]:
                result.generated.append(GeneratedTokens(beam, [], FINISH_STOP, []))
        return bool(outputs)

    def _settle_failure(self, generation: Generation, result: StepResult) -> None:
        """Add a partly cached prompt again, with another salt; fail any other generation."""
        failure, generation.failure = generation.failure, None
        if isinstance(failure, PromptWasCached):
            generation.rewind()
            self._suspects.append(generation)
            return
        logger.error("logits handler failed", exc_info=failure)
        result.failed.append(FailedGeneration(generation, "engine_error", _LOGITS_FAILED))

    def _take_back(self, dropped: list[Generation], result: StepResult) -> None:
        """The KV cache had no room for a next token of these generations: run fewer at a time."""
        was_alone = len(self._running) == 1
        self._running = [each for each in self._running if each not in dropped]
        self._limit = max(1, (len(self._running) + len(dropped)) // 2)
        for generation in dropped:
            self._leave(generation)
            generation.num_drops += 1
            if generation.is_abandoned:
                continue
            if was_alone or generation.num_drops > _MAX_DROPS:
                failed = FailedGeneration(generation, "cache_too_small", _CACHE_TOO_SMALL)
                result.failed.append(failed)
            else:
                generation.rewind()
                self._suspects.append(generation)

    def _recover(self, reason: str, result: StepResult) -> None:
        self.num_recoveries += 1
        self._num_failed_in_row += 1
        # A failed step leaves a beam search in a state that crashes GenAI later.
        has_beam_search = any(each.submit.beams is not None for each in self._running)
        if has_beam_search or self._num_failed_in_row > _MAX_FAILED_STEPS:
            raise PipelineBroken(reason)
        suspects = [each for each in self._running if not each.is_proven] or self._running
        innocents = [each for each in self._running if each not in suspects]
        self._empty_pipeline(reason)
        if len(suspects) == 1 and suspects[0].submit.grammar is not None:
            message = f"The grammar cannot be used: {reason}"
            result.failed.append(FailedGeneration(suspects[0], "invalid_grammar", message))
        elif len(suspects) == 1:
            result.failed.append(FailedGeneration(suspects[0], "engine_error", _FAILED, reason))
        else:
            for suspect in suspects:
                suspect.rewind()
            self._suspects.extend(suspects)
        for innocent in innocents:
            innocent.rewind()
            if self.may_join(innocent):
                self._add_again(innocent, result)
                innocent.is_proven = True
            else:
                self._suspects.append(innocent)

    def _empty_pipeline(self, reason: str) -> None:
        self._assume_prefilling()
        for generation in self._running:
            self._cancel(generation)
        self._running, self._exposed = [], []
        try:
            self._pipeline.step()
        except RuntimeError as error:
            raise PipelineBroken(reason) from error

    def _add_again(self, generation: Generation, result: StepResult) -> None:
        failed = self.add(generation)
        if failed is not None:
            result.failed.append(failed)

    def _cancel(self, generation: Generation) -> None:
        assert generation.handle is not None
        generation.handle.cancel()
        self._leave(generation)

    def _leave(self, generation: Generation) -> None:
        """Note that a generation leaves. Raises PipelineBroken if a half-prefilled block stays."""
        if self._blocks is None or generation.is_decoding or generation.is_echoed:
            return
        if self._must_finish_prefill(generation):
            raise PipelineBroken("A prompt was left half-prefilled, and salts are not supported.")
        self._blocks.note_abandoned(generation.prefill())

    def _must_finish_prefill(self, generation: Generation) -> bool:
        is_partial = generation.first_chunk_end is not None and not generation.is_decoding
        return is_partial and not generation.is_echoed and not self._pipeline.supports_cache_salt


def _most_preemptions(generation: Generation) -> float:
    """The low tier yields as often as others arrive, but for what must be generated again."""
    if generation.must_replay:
        return 1
    return math.inf if generation.submit.is_low_tier else _MAX_PREEMPTIONS


def _last_line(error: Exception) -> str:
    return str(error).strip().splitlines()[-1][:300] if str(error).strip() else "unknown reason"
