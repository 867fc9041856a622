"""The generations inside the pipeline, and how they survive one that breaks a step.

An exception in a step leaves the counters of every generation in it wrong, and the engine
does not say whose fault it was. So all are taken out, and put back so that the guilty
shows itself: those that have made tokens since they were last added are innocent and go
back at once; the others, the suspects, follow one at a time. A suspect that breaks a step
on its own is guilty and fails; nobody else loses or repeats a token.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np

from serving.engine.energy.costs import Work, works_of
from serving.engine.generation import Generation
from serving.engine.logits_hook import View
from serving.engine.pipeline import Pipeline, TokenArray
from serving.engine.rows import UnknownRows, assign
from serving.engine.sharing import Reading, SharedBlocks, is_exposed
from serving.engine.watch import PromptWasCached, Watch
from serving.transport.messages import FINISH_LENGTH, FINISH_STOP, Submit, TokenLogprobs

logger = logging.getLogger(__name__)

# How often the cache may be too small for a generation before it is told so.
_MAX_DROPS: Final = 3
# Failed steps in a row, above which the pipeline itself is taken to be broken.
_MAX_FAILED_STEPS: Final = 200


# Stands for a token that is known only to the pipeline.
_UNTOLD: Final = -1


class PipelineBroken(Exception):
    """Nothing can be done but to start the process anew."""


class Made(msgspec.Struct, frozen=True):
    """New tokens of a generation. A Struct, since one is made for every token, and those of
    the standard library take five times as long."""

    generation: Generation
    token_ids: list[int]
    finish: str | None
    logprobs: list[TokenLogprobs]


@dataclass(frozen=True, slots=True)
class Broken:
    """A generation that cannot go on. `code` is a `core.errors` class's code."""

    generation: Generation
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Step:
    """What one step did."""

    made: list[Made] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)
    works: list[Work] = field(default_factory=list)  # empty unless they are wanted


class Batch:
    """Up to `capacity` generations, in the order in which they were added."""

    def __init__(self, pipeline: Pipeline, capacity: int) -> None:
        self._pipeline = pipeline
        self._capacity = capacity
        self._limit = capacity  # lower for a while after the cache was too small
        self._running: list[Generation] = []
        # Running, and with blocks in the cache that others might still write to.
        self._unread: list[Generation] = []
        self._suspects: deque[Generation] = deque()
        self._blocks = SharedBlocks() if pipeline.has_cache else None
        self._num_failed_in_row = 0
        self.num_recoveries = 0
        self.tells_works = False  # whether somebody wants to know what steps did for whom

    def __len__(self) -> int:
        return len(self._running) + len(self._suspects)

    @property
    def has_room(self) -> bool:
        """Whether one more may be added. Nobody joins while a guilty one is looked for."""
        return not self._suspects and len(self._running) < self._limit

    def may_join(self, generation: Generation) -> bool:
        """Whether it may be added before the next step. If not, a later one will do."""
        if self._blocks is None or _must_score(generation):
            return True  # what is scored goes on from nothing
        prompt_ids, _ = _start_of(generation)
        beside = (_reading(each) for each in self._unread if not each.is_echoed)
        return self._blocks.may_read(prompt_ids, beside)

    @property
    def has_work(self) -> bool:
        """Whether `step` would do anything."""
        return len(self) > 0 or self._pipeline.has_work

    def add(self, generation: Generation) -> Broken | None:
        """Put a generation into the pipeline; what is wrong with it if it was refused."""
        prompt_ids, max_new_tokens = _start_of(generation)
        must_score = _must_score(generation)
        cache_key = self._cache_key(generation.submit, prompt_ids)
        if cache_key is not None and _may_repeat_nothing(generation.submit):
            return Broken(generation, "engine_error", _CANNOT_SALT)
        try:
            generation.handle = self._pipeline.add(
                prompt_ids, generation.submit, max_new_tokens, cache_key=cache_key, echo=must_score
            )
        except RuntimeError as error:
            return Broken(generation, "invalid_value", _first_line(error))
        self._watch_penalty(generation, cache_key)
        generation.added_ids, generation.is_echoed = prompt_ids, must_score
        generation.max_ahead = self._pipeline.max_ahead(generation.submit)
        generation.is_proven = False
        generation.first_stop = None
        generation.num_read = 0
        self._running.append(generation)
        self._unread.append(generation)
        if self._blocks is not None and not must_score:
            self._blocks.note_end(prompt_ids)
        return None

    def _cache_key(self, submit: Submit, prompt_ids: TokenArray) -> bytes | None:
        key = submit.cache_key
        return key if self._blocks is None else self._blocks.key_for(prompt_ids, key)

    def _watch_penalty(self, generation: Generation, cache_key: bytes | None) -> None:
        """Apply the repetition penalty here, if the pipeline leaves it."""
        owns_penalty = self._pipeline.leaves_penalty(generation.submit, cache_key)
        if owns_penalty and generation.watch is None:
            generation.watch = Watch(generation.submit, generation.prompt_ids, ())
        if generation.watch is not None:
            generation.watch.owns_penalty = owns_penalty

    def resume(self, generation: Generation) -> None:
        """Prepare one that has paused to be added again."""
        generation.is_paused = False
        _rewind(generation)

    def remove(self, generation: Generation) -> None:
        """Free the place of a generation that nobody wants any more: at once, or where half a
        prompt would do harm, when the whole has been read."""
        if generation in self._running:
            if self._must_read_on(generation):
                generation.is_abandoned = True
                return
            self._running.remove(generation)
            self._unread = [each for each in self._unread if each is not generation]
            self._cancel(generation)
        elif generation in self._suspects:
            self._suspects.remove(generation)

    def step(self) -> Step:
        """Advance every generation. Raises `PipelineBroken`."""
        result = Step()
        self._add_next_suspect(result)
        now = time.monotonic()
        for generation in self._unread:
            if generation.first_step_at is None:
                generation.first_step_at = now
        must_look = (
            bool(self._unread)
            or self._pipeline.speculates
            or any(map(_must_be_seen, self._running))
        )
        try:
            self._pipeline.step(self._look if must_look else None)
        except RuntimeError as error:
            self._recover(_first_line(error), result)
            return result
        self._num_failed_in_row = 0
        if not self._pipeline.has_logits_hook:
            self._assume_read()
        if self.tells_works:
            result.works.extend(works_of(self._running, is_seen=self._pipeline.has_logits_hook))
        self._collect(result)
        return result if self._pipeline.supports_cache_salt else _without_abandoned(result)

    def _assume_read(self) -> None:
        """It cannot be seen how much was read: at least a token."""
        for generation in self._unread:
            generation.first_stop = generation.first_stop or 1

    def _look(self, view: View) -> None:
        """In the middle of a step: who computes what, and what is done to whose logits."""
        running = self._running
        try:
            stretches = assign(
                view.positions.tolist(), view.token_ids.tolist(), len(view.logits), running
            )
        except UnknownRows as error:
            for generation in running:
                generation.failure = None if generation.watch is None else error
            self._assume_read()
            return
        for generation, stretch in zip(running, stretches, strict=True):
            if stretch is None:
                continue
            generation.num_computed = stretch.num_tokens
            if generation.num_cached is None:
                generation.num_cached = stretch.start
            if not generation.is_answering:
                generation.num_read = stretch.start + stretch.num_tokens
                generation.first_stop = generation.first_stop or generation.num_read
            if generation.submit.beams is not None:
                generation.is_beam_grown = bool(stretch.rows)
            elif generation.is_answering:
                generation.num_ahead = stretch.num_tokens - 1
            if generation.watch is not None:
                tokens = generation.made if generation.num_to_replay else generation.tokens
                try:
                    generation.watch.see(view, stretch, generation, tokens)
                except Exception as error:  # an administrator's processor may raise anything
                    generation.failure = error

    def _collect(self, result: Step) -> None:
        ended: list[Generation] = []
        dropped: list[Generation] = []
        for generation in self._running:
            assert generation.handle is not None
            is_searched = generation.submit.beams is not None
            output = None if is_searched else generation.handle.read()
            if generation.failure is not None:
                self._cancel(generation)
                ended.append(generation)
                self._settle_failure(generation, result)
            elif is_searched:
                self._collect_beams(generation, result, ended, dropped)
            elif output is not None:
                made = _advance(generation, *output)
                if isinstance(made, Broken):
                    self._cancel(generation)
                    result.broken.append(made)
                    ended.append(generation)
                elif made is not None:
                    if _uses_up_grant(made):
                        made = _within_grant(made)
                        self._cancel(generation)
                        generation.is_paused = made.finish is None
                    result.made.append(made)
                    if made.finish is not None or generation.is_paused:
                        ended.append(generation)
            elif generation.handle.is_dropped:
                dropped.append(generation)
        if ended:
            self._running = [each for each in self._running if each not in ended]
            self._limit = min(self._capacity, self._limit + len(ended))
        if dropped:
            self._take_back(dropped, result)
        for generation in self._unread:
            if generation.is_abandoned and generation.is_answering:
                self.remove(generation)
        if self._unread:
            self._unread = [
                each
                for each in self._unread
                if each in self._running and is_exposed(len(each.added_ids), len(each.made))
            ]

    def _collect_beams(
        self,
        generation: Generation,
        result: Step,
        ended: list[Generation],
        dropped: list[Generation],
    ) -> None:
        assert generation.handle is not None
        if generation.is_beam_grown:
            generation.is_beam_grown = False
            generation.is_proven = True
            generation.made.append(_UNTOLD)
        answers = (generation, *generation.others)
        outputs = generation.handle.read_beams(len(answers))
        if outputs:
            ended.append(generation)
            for answer, (token_ids, finish) in zip(answers, outputs, strict=False):
                result.made.append(Made(answer, token_ids, finish, []))
            # A search may end with fewer answers than it was asked for.
            for answer in answers[len(outputs) :]:
                result.made.append(Made(answer, [], FINISH_STOP, []))
        elif generation.handle.is_dropped:
            dropped.append(generation)

    def _settle_failure(self, generation: Generation, result: Step) -> None:
        """A prompt of which the cache had a part is tried again with another salt."""
        failure, generation.failure = generation.failure, None
        if isinstance(failure, PromptWasCached):
            _rewind(generation)
            self._suspects.append(generation)
            return
        logger.error("the logits of a request could not be handled", exc_info=failure)
        result.broken.append(Broken(generation, "engine_error", _LOGITS_FAILED))

    def _take_back(self, dropped: list[Generation], result: Step) -> None:
        """The cache could not hold even one more token of these: run fewer at a time."""
        was_alone = len(self._running) == 1
        self._running = [each for each in self._running if each not in dropped]
        self._limit = max(1, (len(self._running) + len(dropped)) // 2)
        for generation in dropped:
            self._forget(generation)
            generation.num_drops += 1
            if generation.is_abandoned:
                continue
            if was_alone or generation.num_drops > _MAX_DROPS:
                result.broken.append(Broken(generation, "cache_too_small", _CACHE_TOO_SMALL))
            else:
                _rewind(generation)
                self._suspects.append(generation)

    def _recover(self, reason: str, result: Step) -> None:
        self.num_recoveries += 1
        self._num_failed_in_row += 1
        # What a failed step leaves of a search by beams makes the engine crash later on.
        is_searching = any(each.submit.beams is not None for each in self._running)
        if is_searching or self._num_failed_in_row > _MAX_FAILED_STEPS:
            raise PipelineBroken(reason)
        suspects = [each for each in self._running if not each.is_proven] or self._running
        innocents = [each for each in self._running if each not in suspects]
        self._empty_pipeline(reason)
        if len(suspects) == 1:
            result.broken.append(_guilty(suspects[0], reason))
        else:
            for suspect in suspects:
                _rewind(suspect)
            self._suspects.extend(suspects)
        for innocent in innocents:
            _rewind(innocent)
            if self.may_join(innocent):
                self._add_again(innocent, result)
                innocent.is_proven = True
            else:
                self._suspects.append(innocent)

    def _empty_pipeline(self, reason: str) -> None:
        self._assume_read()
        for generation in self._running:
            self._cancel(generation)
        self._running, self._unread = [], []
        try:
            self._pipeline.step()
        except RuntimeError as error:
            raise PipelineBroken(reason) from error

    def _add_next_suspect(self, result: Step) -> None:
        is_clear = all(each.is_proven for each in self._running)
        has_place = is_clear and len(self._running) < self._limit
        if self._suspects and has_place and self.may_join(self._suspects[0]):
            self._add_again(self._suspects.popleft(), result)

    def _add_again(self, generation: Generation, result: Step) -> None:
        """It has been rewound."""
        broken = self.add(generation)
        if broken is not None:
            result.broken.append(broken)

    def _cancel(self, generation: Generation) -> None:
        assert generation.handle is not None
        generation.handle.cancel()
        self._forget(generation)

    def _forget(self, generation: Generation) -> None:
        """It leaves the pipeline, perhaps in the middle of its prompt. Raises `PipelineBroken`
        where nothing else keeps others from what it leaves."""
        if self._blocks is None or generation.is_answering or generation.is_echoed:
            return
        if self._must_read_on(generation):
            raise PipelineBroken("A prompt was left half-read, and cannot be told from others.")
        self._blocks.note_cut(_reading(generation))

    def _must_read_on(self, generation: Generation) -> bool:
        """Whether half of its prompt would do harm, once it is not there any more."""
        is_half_read = generation.first_stop is not None and not generation.is_answering
        return is_half_read and not generation.is_echoed and not self._pipeline.supports_cache_salt


def _reading(generation: Generation) -> Reading:
    return Reading(
        generation.added_ids,
        generation.first_stop,
        generation.num_read,
        generation.submit.cache_key,
    )


def _without_abandoned(step: Step) -> Step:
    return Step(
        [each for each in step.made if not each.generation.is_abandoned],
        [each for each in step.broken if not each.generation.is_abandoned],
    )


def _may_repeat_nothing(submit: Submit) -> bool:
    """Whether the engine writes to the logits of every token of the prompt: salted ids have
    none. Of longer stretches it never finds one that begins before the salted ids end."""
    return submit.beams is not None and submit.beams.no_repeat_ngram_size == 1


def _must_score(generation: Generation) -> bool:
    return generation.watch is not None and generation.watch.must_score


def _must_be_seen(generation: Generation) -> bool:
    """Whether each of its steps is looked at: for its logits, or to know how far its beams
    are, of which nothing is told."""
    return generation.watch is not None or generation.submit.beams is not None


_LOGITS_FAILED = (
    "The engine could not do what this request asks of its token probabilities. Try it again "
    "without the logits processors, logprobs or token lists."
)
_CANNOT_SALT = (
    "The engine cannot run this request with no_repeat_ngram_size 1 just now. Use 2 or more, or "
    "leave it out."
)
_CACHE_TOO_SMALL = (
    "The engine's key-value cache is too small for this request. Shorten the prompt or "
    "lower max_tokens, or ask the administrator for a larger cache_size_gb."
)


def _start_of(generation: Generation) -> tuple[TokenArray, int]:
    """The prompt to add and the tokens to make: anew, or on from what was made."""
    if generation.num_to_replay or not generation.tokens:
        return generation.prompt_ids, generation.submit.max_new_tokens
    made = np.array(generation.tokens, dtype=np.int64)
    return np.concatenate([generation.prompt_ids, made]), generation.num_to_make


def _rewind(generation: Generation) -> None:
    """Prepare a generation to be added again."""
    generation.handle = None
    generation.is_proven = False
    generation.made = []
    generation.failure = None
    if generation.watch is not None:
        generation.watch.start_over()
    generation.num_to_replay = len(generation.tokens) if generation.must_replay else 0


def _advance(
    generation: Generation, token_ids: list[int], finish: str | None
) -> Made | Broken | None:
    """Take new tokens; during a replay, compare them with the old ones instead."""
    generation.made += token_ids
    if generation.num_ahead:
        generation.num_proposed += generation.num_ahead
        # The first was not proposed but follows from what was there.
        generation.num_accepted += max(0, len(token_ids) - 1)
        generation.num_ahead = 0
    logprobs = [] if generation.watch is None else generation.watch.logprobs(token_ids)
    if generation.num_to_replay:
        at = len(generation.tokens) - generation.num_to_replay
        known = generation.tokens[at : at + len(token_ids)]
        if token_ids[: len(known)] != known:
            return Broken(generation, "engine_error", "The engine could not resume this request.")
        generation.num_to_replay -= len(known)
        token_ids, logprobs = token_ids[len(known) :], logprobs[len(known) :]
        if not token_ids and finish is None:
            return None
    generation.is_proven = True
    return Made(generation, token_ids, finish, logprobs)


def _uses_up_grant(made: Made) -> bool:
    """Whether it may not go on, or has proposed itself more than it may make."""
    generation = made.generation
    if generation.num_granted is None:
        return False
    num_left = generation.num_granted - len(generation.tokens) - len(made.token_ids)
    return num_left < 0 or (num_left == 0 and made.finish is None)


def _within_grant(made: Made) -> Made:
    """The same without what was made beyond the grant; the end, if it was the last one."""
    generation = made.generation
    assert generation.num_granted is not None
    room = max(0, generation.num_granted - len(generation.tokens))
    finish = FINISH_LENGTH if generation.is_last_grant else None
    return Made(generation, made.token_ids[:room], finish, made.logprobs[:room])


def _guilty(generation: Generation, reason: str) -> Broken:
    if generation.submit.grammar is not None:
        return Broken(generation, "invalid_grammar", f"The grammar cannot be used: {reason}")
    return Broken(generation, "engine_error", "The engine could not run this request.")


def _first_line(error: Exception) -> str:
    """The reason in an engine's exception, without its stack of source locations."""
    return str(error).strip().splitlines()[-1][:300] if str(error).strip() else "unknown reason"
