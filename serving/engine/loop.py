"""The engine's only thread: read the socket, admit, step, send.

Every generation that arrives gets an answer. It is accepted or rejected at once, and ends with a
finish or a rejection, whatever happens to the batch, to its gateway or to the process.
"""

import os
import time
from collections.abc import Callable
from typing import Final, assert_never

import numpy as np
from msgspec import structs

from serving.core import errors
from serving.engine.batch import Batch, PipelineBroken, StepResult
from serving.engine.config import EngineConfig
from serving.engine.energy.meter import RequestEnergy, new_meter
from serving.engine.finished import FinishedGenerations
from serving.engine.generation import (
    FailedGeneration,
    GeneratedTokens,
    Generation,
    WaitQueue,
)
from serving.engine.grammars import GrammarChecks, SharedCompiler
from serving.engine.logits_handler import LogitsHandler, check_ids, load_factories, new_processors
from serving.engine.output_sender import OutputSender
from serving.engine.pipeline import Pipeline
from serving.engine.prefix_cache import TokenArray
from serving.transport.messages import (
    FINISH_LENGTH,
    PROTOCOL_VERSION,
    Cancel,
    EngineStats,
    Grant,
    Hello,
    LogitsSpec,
    Ping,
    Pong,
    SamplingParams,
    Submit,
)
from serving.transport.server import Connection, Incoming, SocketServer

# An idle engine generates a token this often, to know that it still can.
PROBE_INTERVAL_S: Final = 10.0
# How long an idle engine waits for messages before it checks deadlines and signals.
_IDLE_WAIT_S: Final = 0.2
# Deadlines are minutes long, so not every step checks them.
_EXPIRY_INTERVAL_S: Final = 0.2
_PROBE: Final = Submit(
    id=0,
    prompt_ids=np.zeros(1, dtype="<i4").tobytes(),
    sampling=SamplingParams(),
    max_new_tokens=1,
    deadline_s=60.0,
)


class EngineLoop:
    """Owns the batch, the wait queue and the socket."""

    def __init__(self, config: EngineConfig, pipeline: Pipeline) -> None:
        self._config = config
        self._pipeline = pipeline
        self._batch = Batch(pipeline, config.options.max_running)
        self._processors = load_factories(config.options.logits_processors)
        self._waiting = WaitQueue()
        self._checking: set[Generation] = set()  # whose grammars are being checked
        self._alive: dict[tuple[int, int], Generation] = {}  # by `_key`
        self._sender = OutputSender(config.options.flush_interval_ms)
        self._finished = FinishedGenerations(config.usage_dir)
        self._next_expiry_at = 0.0
        self._last_token_at: float | None = None
        self._num_steps = 0
        self._num_prompt_tokens = 0
        self._num_cached_tokens = 0
        self._num_output_tokens = 0
        self._num_unused_tokens = 0
        self._energy = new_meter(config.sysfs, config.socket_path.parent / "energy", config.device)
        self._batch.reports_work = self._energy is not None
        self._is_stopping = False
        self._has_lost_parent = False

    def warm_up(self) -> None:
        """Generate the first tokens; test hook and salts. Raises PipelineBroken or RuntimeError."""
        self._probe(_PROBE)
        forced = [
            structs.replace(_PROBE, logits=LogitsSpec(allowed_ids=(token_id,)))
            for token_id in (0, 1)
        ]
        if self._pipeline.has_logits_hook and list(map(self._probe, forced)) != [0, 1]:
            # The sampler does not see what the hook writes, as on a device with its own copy of
            # the logits. Then the engine offers nothing that needs the hook.
            self._pipeline.has_logits_hook = False
        if self._pipeline.num_salts and not self._understands_salts():
            self._pipeline.disable_salts()

    def _understands_salts(self) -> bool:
        """Whether the plugin computes with large token ids exactly: plugins differ in that."""
        # An odd number is the first to be rounded, and this key has the largest salt.
        ids = np.ones(1, dtype="<i4").tobytes()
        largest = (self._pipeline.num_salts - 1).to_bytes(16)
        try:
            self._probe(
                structs.replace(_PROBE, prompt_ids=ids, cache_key=largest, logits=LogitsSpec())
            )
        except RuntimeError:
            return False
        return True

    def _probe(self, submit: Submit) -> int:
        """Generate and return one token. Raises RuntimeError if the probe fails."""
        probe = Generation.of(None, submit)
        if submit.logits is not None:
            probe.logits = LogitsHandler(submit, probe.prompt_ids)
        self._batch.add(probe)
        while self._batch.has_work:
            step = self._batch.step()
            for failed in step.failed:
                raise RuntimeError(failed.message)
            self._take_step(step)
        return probe.tokens[0]

    def run(self, on_listening: Callable[[SocketServer], None]) -> None:
        """Serve until `stop`. Raises PipelineBroken if the process must be replaced."""
        server = SocketServer(self._config.socket_path, self._hello)
        vocab_size = self._pipeline.vocab_size
        compiler = SharedCompiler(self._pipeline.tokenizer, vocab_size, server)
        self._grammars = GrammarChecks(self._config.folder, vocab_size, server, compiler)
        on_listening(server)
        try:
            while not self._is_stopping:
                self._iterate(server)
            if not self._has_lost_parent:
                self._reject_all()
        finally:
            self._grammars.close()
            server.close()

    def stop(self) -> None:
        """Leave `run` soon. Safe to call from a signal handler."""
        self._is_stopping = True

    def watch_parent(self, fd: int, server: SocketServer) -> None:
        """Stop when this descriptor, which the parent holds open, reaches its end.

        A new node will start a new engine. So requests are not rejected: their connections
        break, and the gateways submit them to the new engine.
        """

        def on_readable() -> None:
            if not os.read(fd, 1024):
                self._has_lost_parent = True
                self.stop()

        server.watch(fd, on_readable)

    def _iterate(self, server: SocketServer) -> None:
        has_work = self._batch.has_work or (bool(self._waiting) and self._batch.has_free_slot)
        if self._energy is not None and not has_work:
            self._energy.end()
        for incoming in server.poll(0 if has_work else _IDLE_WAIT_S):
            self._receive(incoming)
        self._grammars.tick()
        self._expire()
        self._admit()
        if self._batch.has_work:
            if self._energy is not None:
                self._energy.begin()
            self._take_step(self._batch.step())
        else:
            self._sender.send(num_streams=0)
            self._end_when_full()
            self._probe_when_idle()

    # Messages

    def _receive(self, incoming: Incoming) -> None:
        match incoming.message:
            case None:
                self._disconnect(incoming.connection)
            case Submit():
                self._submit(incoming.connection, incoming.message)
            case Cancel(id=id_, num_used=num_used):
                self._cancel(incoming.connection, id_, num_used)
            case Grant():
                self._grant(incoming.connection, incoming.message)
            case Ping(nonce=nonce):
                incoming.connection.send(Pong(nonce, self._stats()))
            case _:
                assert_never(incoming.message)

    def _submit(self, connection: Connection, submit: Submit) -> None:
        try:
            generation = Generation.of(connection, submit)
            if self._energy is not None:
                generation.energy = RequestEnergy(self._energy.totals)
            self._check(generation)
            if submit.logits is not None:
                generation.logits = self._new_handler(submit, submit.logits, generation.prompt_ids)
        except ValueError as error:
            refused = Generation(connection, submit, np.zeros(0, np.int64))
            refused.reject(errors.InvalidRequest.code, str(error))
            return
        # The wait queue has `max_waiting` slots, beside those that the next step will admit.
        options = self._config.options
        num_slots = options.max_waiting + max(0, options.max_running - len(self._batch))
        if len(self._waiting) + len(self._checking) >= num_slots:
            generation.reject(
                errors.Overloaded.code, "The engine's wait queue is full; try again shortly."
            )
            return
        self._alive[_key(generation)] = generation
        if submit.grammar is None:
            self._accept(generation)
        else:
            self._checking.add(generation)
            self._grammars.check(
                submit.grammar, lambda refusal: self._on_checked(generation, refusal)
            )

    def _check(self, generation: Generation) -> None:
        """Raises ValueError for a request that would break or overflow the pipeline."""
        submit, ids = generation.submit, generation.prompt_ids
        vocab_size = self._pipeline.vocab_size
        if len(ids) == 0:
            raise ValueError("The prompt is empty.")
        if int(ids.min()) < 0 or (vocab_size and int(ids.max()) >= vocab_size):
            raise ValueError(f"The prompt has token ids outside 0..{vocab_size - 1}.")
        # GenAI writes to the logits of stop tokens without checking the ids.
        if vocab_size and any(not 0 <= id_ < vocab_size for id_ in submit.stop_token_ids):
            raise ValueError(f"There are stop token ids outside 0..{vocab_size - 1}.")
        max_context = self._config.max_context
        if max_context and len(ids) + min(1, submit.max_new_tokens) > max_context:
            raise ValueError(
                f"The prompt has {len(ids)} tokens; the model's context is {max_context}."
            )
        if submit.cache_key is None:
            return
        if not self._pipeline.supports_cache_salt:
            raise ValueError("This model does not support cache_salt.")
        # GenAI would write to the logits of salted ids, which have none.
        if submit.beams is not None and submit.beams.no_repeat_ngram_size:
            raise ValueError("no_repeat_ngram_size does not work with a cache_salt.")

    def _new_handler(
        self, submit: Submit, spec: LogitsSpec, prompt_ids: TokenArray
    ) -> LogitsHandler:
        """Raises ValueError for options that this engine does not support."""
        if not self._pipeline.has_logits_hook:
            raise ValueError("The logits of this model cannot be read or changed.")
        if spec.prompt_logprobs is not None and not self._pipeline.can_score_prompts:
            raise ValueError(
                "This model's prompts cannot be scored while enable_prefix_caching is on."
            )
        check_ids(spec, self._pipeline.vocab_size)
        args = spec.processor_args
        processors = [] if args is None else new_processors(self._processors, args)
        return LogitsHandler(submit, prompt_ids, processors)

    def _on_checked(self, generation: Generation, refusal: str | None) -> None:
        if generation not in self._checking:
            return  # cancelled meanwhile
        self._checking.discard(generation)
        if refusal is None:
            self._accept(generation)
        else:
            self._end(generation)
            generation.reject(
                errors.InvalidGrammar.code, f"The grammar cannot be compiled: {refusal}"
            )

    def _accept(self, generation: Generation) -> None:
        self._waiting.add(generation)
        self._sender.accept(generation)

    def _cancel(self, connection: Connection, id_: int, num_used: int) -> None:
        generation = self._alive.get((id(connection), id_))
        if generation is not None:
            self._drop(generation)
        num_unused = self._finished.take_unused(connection, id_, num_used)
        self._num_output_tokens -= num_unused
        self._num_unused_tokens += num_unused

    def _grant(self, connection: Connection, grant: Grant) -> None:
        generation = self._alive.get((id(connection), grant.id))
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
            self._sender.add(GeneratedTokens(generation, [], FINISH_LENGTH, []))
            self._end(generation)

    def _disconnect(self, connection: Connection) -> None:
        for generation in [each for each in self._alive.values() if each.connection is connection]:
            self._drop(generation)
        self._finished.write_lost(connection)

    # Admission and ends

    def _admit(self) -> None:
        if self._must_restart():
            return  # gateways will submit the waiting generations to the next process
        while (
            self._waiting
            and self._batch.has_free_slot
            and self._batch.may_join(self._waiting.first)
        ):
            failed = self._batch.add(self._waiting.pop())
            if failed is not None:
                self._fail(failed)

    def _must_restart(self) -> bool:
        """Whether the engine has waited too long for an idle moment to restart in."""
        return self._grammars.fullness > 2

    def _end_when_full(self) -> None:
        """Raises PipelineBroken if compiled grammars take memory that only an exit can free."""
        if self._must_restart() or (self._grammars.fullness > 1 and not self._alive):
            raise PipelineBroken("compiled grammars take too much memory; the engine restarts")

    def _expire(self) -> None:
        now = time.monotonic()
        if now < self._next_expiry_at:
            return
        self._next_expiry_at = now + _EXPIRY_INTERVAL_S
        for generation in list(self._alive.values()):
            deadline_s = generation.submit.deadline_s
            if generation.arrived_at + deadline_s < now:
                self._drop(generation)
                message = f"The request ran longer than {deadline_s:g} s."
                generation.reject(errors.DeadlineExceeded.code, message)

    def _drop(self, generation: Generation) -> None:
        """End a generation without an answer."""
        self._leave(generation)
        self._sender.forget(generation)
        self._end(generation)

    def _leave(self, generation: Generation) -> None:
        """Take a generation out of the wait queue or the batch."""
        self._waiting.discard(generation)
        self._checking.discard(generation)
        self._batch.remove(generation)

    def _end(self, generation: Generation) -> None:
        self._alive.pop(_key(generation), None)
        if generation.tokens and generation.connection is not None:
            self._finished.add(generation)

    def _fail(self, failed: FailedGeneration) -> None:
        if failed.generation.connection is None:
            raise PipelineBroken(f"the engine's own probe failed: {failed.message}")
        self._end(failed.generation)
        failed.generation.reject(failed.code, failed.message)

    def _reject_all(self) -> None:
        self._sender.send(num_streams=0, at_once=True)
        for generation in list(self._alive.values()):
            generation.reject(errors.ModelNotReady.code, "The model is being unloaded.")

    # Output

    def _take_step(self, step: StepResult) -> None:
        self._num_steps += 1
        if self._energy is not None:
            is_end = any(new.finish is not None for new in step.generated)
            self._energy.note(step.works, is_end=is_end)
        for new in step.generated:
            self._count(new.generation, len(new.token_ids))
            self._sender.add(new)
            if new.finish is not None:
                self._end(new.generation)
        if step.generated:
            self._last_token_at = time.monotonic()
        self._sender.send(num_streams=len(self._batch), at_once=bool(step.failed))
        for failed in step.failed:
            self._fail(failed)

    def _count(self, generation: Generation, num_tokens: int) -> None:
        if generation.connection is None:
            return
        if not generation.tokens:
            self._num_prompt_tokens += len(generation.prompt_ids)
            self._num_cached_tokens += generation.num_cached or 0
        self._num_output_tokens += num_tokens

    def _probe_when_idle(self) -> None:
        last = self._last_token_at
        if last is None or time.monotonic() - last > PROBE_INTERVAL_S:
            self._batch.add(Generation.of(None, _PROBE))

    # Reports

    def _hello(self) -> Hello:
        options = self._config.options
        return Hello(
            protocol_version=PROTOCOL_VERSION,
            pid=os.getpid(),
            max_context=self._config.max_context,
            vocab_size=self._pipeline.vocab_size,
            max_running=options.max_running,
            max_waiting=options.max_waiting,
            has_logits_hook=self._pipeline.has_logits_hook,
            can_score_prompts=self._pipeline.can_score_prompts,
            has_processors=bool(self._processors),
            supports_cache_salt=self._pipeline.supports_cache_salt,
        )

    def _stats(self) -> EngineStats:
        last = self._last_token_at
        energy = None if self._energy is None else self._energy.totals
        return EngineStats(
            num_running=len(self._batch),
            num_waiting=len(self._waiting) + len(self._checking),
            num_steps=self._num_steps,
            num_prompt_tokens=self._num_prompt_tokens,
            num_cached_tokens=self._num_cached_tokens,
            num_output_tokens=self._num_output_tokens,
            num_unused_tokens=self._num_unused_tokens,
            num_recoveries=self._batch.num_recoveries,
            cache_usage=self._pipeline.cache_usage,
            last_token_age_s=None if last is None else time.monotonic() - last,
            energy_j=None if energy is None else energy.used_j,
            request_energy_j=None if energy is None else energy.reported_j,
        )


def _key(generation: Generation) -> tuple[int, int]:
    return id(generation.connection), generation.submit.id
