"""Models that generate text, with or without pictures: admit, step, send. Every generation that
arrives gets an answer: acceptance or rejection at once, and at the end a finish or a rejection,
whatever happens to the batch or the gateway, until the process ends."""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Self

import numpy as np
from msgspec import structs

from vinery_serving.core import errors
from vinery_serving.core.request import Sampling
from vinery_serving.engine.admission import Admission
from vinery_serving.engine.arrival import TOO_MANY_PIXELS, ArrivingPixels, check_submit
from vinery_serving.engine.batch import Batch, StepResult
from vinery_serving.engine.cached_prompts import CachedPrompts
from vinery_serving.engine.config import EngineConfig, alone
from vinery_serving.engine.estimates import Figures
from vinery_serving.engine.fair_queue import Lane
from vinery_serving.engine.finished import FinishedGenerations
from vinery_serving.engine.generation import FailedGeneration, GeneratedTokens, Generation
from vinery_serving.engine.grammars import UNDECIDED, Checkers, GrammarChecks, SharedCompiler
from vinery_serving.engine.kinds import CALM_WAIT_S, EngineKind, key_of
from vinery_serving.engine.logits_handler import LogitsHandler, load_factories, new_processors
from vinery_serving.engine.output_sender import OutputSender
from vinery_serving.engine.picture_test import PictureTests
from vinery_serving.engine.pipeline import Pipeline
from vinery_serving.engine.supervision import Liveness, PipelineBroken
from vinery_serving.transport import messages
from vinery_serving.transport.server import Connection, SocketServer

# How long an engine with requests, or with something to report, waits for messages.
_IDLE_WAIT_S: Final = 0.2
_QUEUE_IS_FULL: Final = "The engine's wait queue is full; try again shortly."
_WOULD_WAIT: Final = "The request would wait longer than {:g} s for its turn. Try again in {} s."
# Of all requests that wait or run. Each may have 48 MB, and wait among a thousand others.
_MAX_PIXEL_BYTES: Final = 2**30
_TOO_MANY_GRAMMARS: Final = (
    "Too many new schemas, patterns or grammars of this API key are being compiled; try again "
    "shortly, or use fewer different ones."
)
# An EAGLE-3 head needs a prompt of two tokens.
PROBE: Final = messages.Submit(
    id=0,
    prompt_ids=np.zeros(2, dtype="<i4").tobytes(),
    sampling=Sampling(),
    max_new_tokens=1,
    deadline_s=60.0,
)


class TextEngine(EngineKind[Generation]):
    """Owns the batch and the wait queue."""

    REFUSAL = "This engine generates text: it makes no vectors."
    _checkers: ClassVar[Checkers]

    def __init__(
        self, config: EngineConfig, pipeline: Pipeline, liveness: Liveness | None = None
    ) -> None:
        super().__init__(config, liveness or Liveness())
        self._pipeline = pipeline
        self._batch = Batch(
            pipeline, config.options.max_running, num_step_tokens=pipeline.max_step_tokens
        )
        self._batch.on_encoding = lambda: self.liveness.promise(config.options.step_timeout_s)
        self._processors = load_factories(config.options.logits_processors)
        self._waiting = Admission(config.options, self._batch)
        self._cached = CachedPrompts(lambda: pipeline.num_cache_tokens)
        # The generations in grammar checks, with a function that stops the wait.
        self._checking: dict[Generation, Callable[[], None]] = {}
        self._pixels = ArrivingPixels()
        self._sender = OutputSender(config.options.flush_interval_ms)
        self._finished = FinishedGenerations(config.usage_dir)
        self._figures = Figures()
        self._picture_tests = PictureTests(pipeline.vision, self._batch)

    @classmethod
    def prepare(cls, config: EngineConfig) -> None:
        load_factories(config.options.logits_processors)  # the files may be in any folder
        cls._checkers = Checkers(config.folder)

    @classmethod
    def load(cls, config: EngineConfig, liveness: Liveness) -> Self:
        with alone(config.cache_dir):
            pipeline = Pipeline(config)
        engine = cls(config, pipeline, liveness)
        engine.warm_up()
        return engine

    def warm_up(self) -> None:
        """Generate the first tokens; test hook and salts. Raises PipelineBroken or RuntimeError."""
        self._try(PROBE)
        self._pipeline.note_block()
        forced = [
            structs.replace(PROBE, logits=messages.LogitsSpec(allowed_ids=(token_id,)))
            for token_id in (0, 1)
        ]
        if self._pipeline.has_logits_hook and list(map(self._try, forced)) != [0, 1]:
            # The sampler does not see what the hook writes, as on a device with its own copy of
            # the logits. Then the engine offers nothing that needs the hook.
            self._pipeline.has_logits_hook = False
        if self._pipeline.vision is not None:
            self._show_pictures()
        elif self._pipeline.num_salts and not self._understands_salts():
            self._pipeline.disable_salts()

    def _show_pictures(self) -> None:
        """Raises RuntimeError if pictures do not have the expected tokens."""
        self._picture_tests.begin(timeout_s=math.inf)
        while self._picture_tests.is_running:
            self._picture_tests.join()
            if self._batch.has_work:
                self._take_step(self._step())
        result = self._picture_tests.newest
        assert result is not None
        if not result.is_finished:
            raise RuntimeError(result.failure)

    def _understands_salts(self) -> bool:
        """Whether the plugin computes with large token ids exactly: plugins differ in that."""
        # An odd number is the first to be rounded, and this key has the largest salt.
        ids = np.ones(2, dtype="<i4").tobytes()
        largest = (self._pipeline.num_salts - 1).to_bytes(16)
        probe = structs.replace(
            PROBE, prompt_ids=ids, cache_key=largest, logits=messages.LogitsSpec()
        )
        try:
            self._try(probe)
        except RuntimeError:
            return False
        return True

    def _try(self, submit: messages.Submit) -> int:
        probe = Generation.of(None, submit, self._pipeline.vision)
        if submit.logits is not None:
            probe.logits = LogitsHandler(submit, probe.prompt_ids)
        _require(self._batch.add(probe))
        while self._batch.has_work:
            step = self._step()
            for failed in step.failed:
                _require(failed)
            self._take_step(step)
        return probe.tokens[0]

    def open(self, server: SocketServer) -> None:
        vocab_size = self._pipeline.vocab_size
        compiler = SharedCompiler(self._pipeline.tokenizer, vocab_size, server)
        self._grammars = GrammarChecks(self._checkers, vocab_size, server, compiler)

    def close(self) -> None:
        self._grammars.close()

    @property
    def wait_s(self) -> float:
        if self._batch.has_work or self._picture_tests.is_running:
            return 0
        if self._waiting and self._batch.has_free_slot:
            return self._waiting.held_s
        return CALM_WAIT_S if self._is_calm else _IDLE_WAIT_S

    @property
    def _is_calm(self) -> bool:
        return not self.requests and self._waiting.is_calm

    @property
    def is_busy(self) -> bool:
        return bool(self.requests) or self._picture_tests.is_running

    def step(self, server: SocketServer) -> bool:
        self._grammars.tick()
        self._picture_tests.join()
        self._admit()
        if (load := self._waiting.report(self._cached)) is not None:
            server.broadcast(load)
        if self._batch.has_work:
            self._take_step(self._step())
            return True
        self._sender.send(num_streams=0)
        if self._pipeline.speculation.must_switch and self._is_calm:
            self._switch()
        is_full = self._grammars.fullness > 1 and not self.requests
        if is_full or self._must_restart():
            raise PipelineBroken("compiled grammars take too much memory; the engine restarts")
        return False

    def probe(self) -> None:
        self._batch.add(Generation.of(None, PROBE, self._pipeline.vision))

    def finish(self) -> None:
        self._sender.send(num_streams=0, at_once=True)

    def _step(self) -> StepResult:
        self.liveness.begin_step(self._batch.num_next_tokens)
        step = self._batch.step()
        self.liveness.end_step()
        return step

    def _switch(self) -> None:
        """Load the model with or without what proposes tokens. Raises PipelineBroken."""
        self.liveness.promise(self.config.options.load_timeout_s)
        try:
            self._pipeline.switch()
            self._batch.forget_cache()
            self._cached.clear()
            self._try(PROBE)
        except (RuntimeError, OSError) as error:
            raise PipelineBroken(f"the model did not load again: {error}") from error

    # Messages

    def receive(self, connection: Connection, message: messages.ToEngine) -> bool:
        match message:
            case messages.Submit():
                self._submit(connection, message)
            case messages.MediaPixels():
                self._pixels.add(connection, message)
            case messages.Grant():
                self._grant(connection, message)
            case messages.Arriving():
                self._waiting.expect()
            case messages.TestPictures(nonce=nonce):
                self._picture_tests.ask(connection, nonce)
            case _:
                return False
        return True

    def _submit(self, connection: Connection, submit: messages.Submit) -> None:
        try:
            pixels = self._pixels.take(connection, submit)
            self._check_room(submit, len(pixels))
            generation = Generation.of(connection, submit, self._pipeline.vision, pixels)
            check_submit(submit, generation.prompt_ids, self._pipeline, self.config.max_context)
            if submit.logits is not None:
                args = submit.logits.processor_args
                processors = [] if args is None else new_processors(self._processors, args)
                generation.logits = LogitsHandler(submit, generation.prompt_ids, processors)
        except (ValueError, errors.Overloaded) as error:
            is_full = isinstance(error, errors.Overloaded)
            code = errors.Overloaded.code if is_full else errors.InvalidRequest.code
            connection.send(messages.Rejected(submit.id, code or "", str(error)))
            return
        if submit.known is None and not self._may_wait(generation):  # else the lost engine had room
            return
        self.requests[generation.key] = generation
        self.liveness.begin_request()
        if submit.grammar is None:
            self._accept(generation)
        else:
            self._check_grammar(generation, submit.grammar)

    def _check_room(self, submit: messages.Submit, num_bytes: int) -> None:
        """Raises Overloaded if the pictures of all requests would take too much memory."""
        if num_bytes == 0 or submit.known is not None:
            return
        num_held = sum(each.num_pixel_bytes for each in self.requests.values())
        if num_held + num_bytes > _MAX_PIXEL_BYTES:
            raise errors.Overloaded(TOO_MANY_PIXELS)

    def _may_wait(self, generation: Generation) -> bool:
        submit = generation.submit
        if submit.is_low_tier and self._waiting.has_low_room():
            return True
        if (retry_after_s := self._waiting.check_wait(submit)) is not None:
            late = _WOULD_WAIT.format(submit.max_queue_s, retry_after_s)
            generation.reject(errors.Overloaded.code, late, retry_after_s)
            return False
        if not self._has_room(submit.lane):
            generation.reject(errors.Overloaded.code, _QUEUE_IS_FULL)
            return False
        return True

    def _has_room(self, lane: Lane) -> bool:
        """Whether one more of this lane may wait. A lane that holds the most slots may lose one."""
        checking = Counter(each.submit.lane for each in self._checking)
        if self._waiting.has_room(lane, checking):
            return True
        if (yielding := self._waiting.last_to_yield(lane, checking)) is None:
            return False
        self.drop(yielding)
        yielding.reject(errors.Overloaded.code, _QUEUE_IS_FULL)
        return True

    def _check_grammar(self, generation: Generation, grammar: messages.GrammarSpec) -> None:
        lane = generation.submit.lane
        if not self._grammars.has_room(grammar, lane):
            self._end(generation)
            generation.reject(errors.Overloaded.code, _TOO_MANY_GRAMMARS)
            return
        self._checking[generation] = lambda: None
        forget = self._grammars.check(
            grammar, lambda refusal: self._on_checked(generation, refusal), lane
        )
        if generation in self._checking:  # the grammar is not known yet
            self._checking[generation] = forget

    def _on_checked(self, generation: Generation, refusal: str | None) -> None:
        if self._checking.pop(generation, None) is None:
            return  # cancelled meanwhile
        grammar = generation.submit.grammar
        if refusal is None:
            self._accept(generation)
        elif grammar is not None and grammar.weaker is not None:
            generation.submit = structs.replace(generation.submit, grammar=grammar.weaker)
            self._check_grammar(generation, grammar.weaker)
        else:
            self._end(generation)
            error = errors.Overloaded if refusal in UNDECIDED else errors.InvalidGrammar
            generation.reject(error.code, f"The grammar cannot be compiled: {refusal}")

    def _accept(self, generation: Generation) -> None:
        self._waiting.add(generation)
        self._sender.accept(generation)

    def cancel(self, connection: Connection, id_: int, num_used: int) -> None:
        self._pixels.drop(connection, id_)
        super().cancel(connection, id_, num_used)
        num_unused = self._finished.take_unused(connection, id_, num_used)
        self._figures.num_output_tokens -= num_unused
        self._figures.num_unused_tokens += num_unused

    def _grant(self, connection: Connection, grant: messages.Grant) -> None:
        generation = self.requests.get(key_of(connection, grant.id))
        if generation is None or generation.submit.beams is not None:
            return
        generation.num_granted, generation.is_last_grant = grant.num_tokens, grant.is_last
        if len(generation.tokens) < grant.num_tokens:
            if generation.is_paused:
                generation.is_paused = False
                generation.rewind()
                self._waiting.put_back(generation)
        elif grant.is_last:
            self._leave(generation)
            self._sender.add(GeneratedTokens(generation, [], messages.FINISH_LENGTH, []))
            self._end(generation)

    def disconnect(self, connection: Connection) -> None:
        self._pixels.drop_all(connection)
        super().disconnect(connection)
        self._finished.write_lost(connection)

    # Admission and ends

    def _admit(self) -> None:
        if self._must_restart():
            return  # gateways will submit the waiting generations to the next process
        for failed in self._waiting.admit():
            self._fail(failed)

    def _must_restart(self) -> bool:
        """Whether compiled grammars take so much memory, which only an exit frees, that the engine
        waits for no idle moment."""
        return self._grammars.fullness > 2

    def expire(self, now: float) -> None:
        self._figures.sample()
        super().expire(now)

    def drop(self, request: Generation) -> None:
        self._leave(request)
        self._sender.forget(request)
        self._end(request)

    def _leave(self, generation: Generation) -> None:
        self._waiting.discard(generation)
        self._checking.pop(generation, lambda: None)()
        self._batch.remove(generation)

    def _end(self, generation: Generation) -> None:
        if self.requests.pop(generation.key, None) is not None:
            self.liveness.end_request()
        self._waiting.settle(generation)
        self._cached.note_end(generation)
        begun_at, last_at = generation.first_token_at, self.last_token_at
        if begun_at is not None and last_at is not None:
            # A beam search has all its tokens at once.
            num_gaps = 0 if generation.submit.beams else len(generation.tokens) - 1
            num_drafts = generation.num_proposed, generation.num_accepted
            self._figures.ended(last_at - begun_at, num_gaps, *num_drafts)
        if generation.tokens and generation.connection is not None:
            self._finished.add(generation)

    def _fail(self, failed: FailedGeneration) -> None:
        if self._waiting.end_slice(failed.generation) or self._picture_tests.take_failure(failed):
            return
        if failed.generation.connection is None:
            raise PipelineBroken(f"the engine's own probe failed: {failed.message}")
        self._end(failed.generation)
        failed.generation.reject(failed.code, failed.message)

    # Output

    def _take_step(self, step: StepResult) -> None:
        self._figures.num_steps += 1
        if step.generated:
            self.last_token_at = time.monotonic()
        for new in step.generated:
            if new.generation.connection is not None:
                self._count(new.generation, len(new.token_ids))
            self._sender.add(new)
            if new.finish is not None:
                self._end(new.generation)
        for begun in step.begun:
            self._sender.begin(begun.sliced_from or begun)
        self._sender.send(num_streams=len(self._batch), at_once=bool(step.failed))
        for failed in step.failed:
            self._fail(failed)

    def _count(self, generation: Generation, num_tokens: int) -> None:
        if not generation.tokens:
            generation.first_token_at = first_at = time.monotonic()
            num_prompt, num_cached = len(generation.prompt_ids), generation.num_cached or 0
            self._cached.note_prompt(generation)
            self._figures.first_token(first_at - generation.arrived_at, num_prompt, num_cached)
        self._figures.num_output_tokens += num_tokens

    # Reports

    def report(self) -> Mapping[str, Any]:
        """Why the newest test with known pictures has failed; empty: it has not, or there is
        none."""
        newest = self._picture_tests.newest
        return {"picture_failure": "" if newest is None else newest.failure}

    def greet(self) -> Mapping[str, Any]:
        self._cached.tell_all()
        return {
            "has_logits_hook": self._pipeline.has_logits_hook,
            "can_score_prompts": self._pipeline.can_score_prompts,
            "has_processors": bool(self._processors),
            "supports_cache_salt": self._pipeline.supports_cache_salt,
            "takes_pictures": self._pipeline.vision is not None,
            **self.report(),
        }

    def stats(self) -> messages.EngineStats:
        last, figures = self.last_token_at, self._figures
        prompt_tokens_per_s, output_tokens_per_s = figures.tokens_per_s
        cache_usage, cache_bytes = self._pipeline.cache
        return messages.EngineStats(
            num_running=len(self._batch),
            num_waiting=len(self._waiting) + len(self._checking),
            num_steps=figures.num_steps,
            tokens=figures.tokens,
            num_unused_tokens=figures.num_unused_tokens,
            num_recoveries=self._batch.num_recoveries,
            cache_usage=cache_usage,
            last_token_age_s=None if last is None else time.monotonic() - last,
            prompt_tokens_per_s=prompt_tokens_per_s,
            output_tokens_per_s=output_tokens_per_s,
            first_token_s=figures.first_token_s,
            inter_token_s=figures.inter_token_s,
            cache_bytes=cache_bytes,
            draft_loss=self._pipeline.speculation.loss,
        )


def _require(failure: FailedGeneration | None) -> None:
    if failure is not None:
        raise RuntimeError(f"The first token failed: {failure.reason or failure.message}")


KIND: Final = TextEngine
