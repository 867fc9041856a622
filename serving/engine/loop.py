"""The engine's only thread: read the socket, admit, step, send.

Every generation that arrives is answered: accepted or rejected at once, and ended by a
finish or a rejection, whatever happens to the batch, to its gateway or to the process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final, assert_never

import numpy as np
from msgspec import structs

from serving.core.errors import (
    DeadlineExceeded,
    InvalidGrammar,
    InvalidRequest,
    ModelNotReady,
    Overloaded,
)
from serving.engine.batch import Batch, Broken, Made, PipelineBroken, Step
from serving.engine.compiling import SharedCompiler
from serving.engine.config import EngineConfig
from serving.engine.ended import Ended
from serving.engine.energy.attribution import find_energy
from serving.engine.generation import Generation
from serving.engine.grammars import GrammarChecks
from serving.engine.outbox import Outbox
from serving.engine.pipeline import Pipeline, TokenArray
from serving.engine.processors import load_factories, make_processors
from serving.engine.queue import Queue
from serving.engine.shaper import check_ids
from serving.engine.watch import Watch
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

# An idle engine makes a token this often, to know that it still can.
PROBE_INTERVAL_S: Final = 10.0
# An idle engine waits this long for messages before it looks at deadlines and signals.
_IDLE_WAIT_S: Final = 0.2
# Deadlines are in minutes: a step need not look at all of them.
_EXPIRY_INTERVAL_S: Final = 0.2
_PROBE: Final = Submit(
    id=0,
    prompt_ids=np.zeros(1, dtype="<i4").tobytes(),
    sampling=SamplingParams(),
    max_new_tokens=1,
    deadline_s=60.0,
)

_Key = tuple[int, int]  # (id of the connection object, id on it)


class EngineLoop:
    """Owns the batch, the queue before it, and the socket."""

    def __init__(self, config: EngineConfig, pipeline: Pipeline) -> None:
        self._config = config
        self._pipeline = pipeline
        self._batch = Batch(pipeline, config.options.max_running)
        self._processors = load_factories(config.options.logits_processors)
        self._waiting = Queue()
        self._checking: set[Generation] = set()
        self._alive: dict[_Key, Generation] = {}
        self._outbox = Outbox(config.options.flush_interval_ms)
        self._next_expiry_at = 0.0
        self._last_token_at: float | None = None
        self._num_steps = 0
        self._num_prompt_tokens = 0
        self._num_cached_tokens = 0
        self._num_output_tokens = 0
        self._num_unused_tokens = 0
        self._ended = Ended(config.books_dir)
        self._energy = find_energy(
            config.sysfs, config.socket_path.parent / "energy", config.device
        )
        self._batch.tells_works = self._energy is not None
        self._is_stopping = False
        self._is_orphan = False
        self._server: SocketServer | None = None

    def warm_up(self) -> None:
        """Make one token, before anybody can ask. Raises `PipelineBroken` or RuntimeError."""
        self._make_one(_PROBE)
        if self._pipeline.has_logits_hook and not all(self._can_force(id_) for id_ in (0, 1)):
            # What is written into the logits does not reach the sampler, as on a device that
            # keeps a copy of its own: then nothing is promised that could not be held.
            self._pipeline.has_logits_hook = False
        if self._pipeline.num_salts and not self._can_read_salted():
            self._pipeline.forgo_salt()

    def _can_read_salted(self) -> bool:
        """Whether large ids are understood, to the last bit: plugins differ in how they
        compute with integers."""
        # An odd number is the first to be rounded, and of this key the salt is the largest.
        ids = np.ones(1, dtype="<i4").tobytes()
        largest = (self._pipeline.num_salts - 1).to_bytes(16)
        keyed = structs.replace(_PROBE, prompt_ids=ids, cache_key=largest)
        try:
            self._make_one(structs.replace(keyed, logits=LogitsSpec()))
        except RuntimeError:
            return False
        return True

    def _can_force(self, token_id: int) -> bool:
        forced = structs.replace(_PROBE, logits=LogitsSpec(allowed_ids=(token_id,)))
        return self._make_one(forced) == token_id

    def _make_one(self, submit: Submit) -> int:
        probe = Generation.of(None, submit)
        if submit.logits is not None:
            probe.watch = Watch(submit, probe.prompt_ids, ())
        self._batch.add(probe)
        while self._batch.has_work:
            step = self._batch.step()
            for broken in step.broken:
                raise RuntimeError(broken.message)
            self._take_step(step)
        return probe.tokens[0]

    def run(self, on_listening: Callable[[], None]) -> None:
        """Serve until `stop`. Raises `PipelineBroken` when the process must be replaced."""
        server = self._server = SocketServer(self._config.socket_path, self._hello)
        vocab_size = self._pipeline.vocab_size
        compiler = SharedCompiler(self._pipeline.tokenizer, vocab_size, server)
        self._grammars = GrammarChecks(self._config.folder, vocab_size, server, compiler)
        on_listening()
        try:
            while not self._is_stopping:
                self._turn(server)
            if not self._is_orphan:
                self._reject_all()
        finally:
            self._grammars.close()
            server.close()

    def stop(self) -> None:
        """Leave `run` soon. Safe to call from a signal handler."""
        self._is_stopping = True

    def watch_parent(self, fd: int) -> None:
        """Stop when this descriptor, held open by the parent, reaches its end.

        Whoever replaces the parent will start another engine: requests are not refused, but
        lose this one, and so go to the next.
        """
        assert self._server is not None

        def listen() -> None:
            if not os.read(fd, 1024):
                self._is_orphan = True
                self.stop()

        self._server.watch(fd, listen)

    def _turn(self, server: SocketServer) -> None:
        has_work = self._batch.has_work or (bool(self._waiting) and self._batch.has_room)
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
            self._outbox.send(num_streams=0)
            self._end_when_full()
            self._probe_when_idle()

    # What arrives

    def _receive(self, incoming: Incoming) -> None:
        match incoming.message:
            case None:
                self._forget(incoming.connection)
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
            self._check(generation)
            if submit.logits is not None:
                generation.watch = self._watch(submit, submit.logits, generation.prompt_ids)
        except ValueError as error:
            Generation(connection, submit, np.zeros(0, np.int64)).reject(
                InvalidRequest.code or "", str(error)
            )
            return
        if len(self._waiting) + len(self._checking) >= self._num_places:
            generation.reject(Overloaded.code or "", "All places are taken; try again shortly.")
            return
        self._alive[_key(generation)] = generation
        if submit.grammar is None:
            self._accept(generation)
        else:
            self._checking.add(generation)
            self._grammars.ask(submit.grammar, lambda refusal: self._judge(generation, refusal))

    @property
    def _num_places(self) -> int:
        """Who may wait: the queue's places, and those that the next step will admit."""
        options = self._config.options
        return options.max_waiting + max(0, options.max_running - len(self._batch))

    def _check(self, generation: Generation) -> None:
        """Raises ValueError for a prompt that would poison or overflow the pipeline."""
        ids, vocab_size = generation.prompt_ids, self._pipeline.vocab_size
        if len(ids) == 0:
            raise ValueError("The prompt is empty.")
        if int(ids.min()) < 0 or (vocab_size and int(ids.max()) >= vocab_size):
            raise ValueError(f"The prompt has token ids outside 0..{vocab_size - 1}.")
        # The engine writes to the logits at these, wherever that is in its memory.
        if vocab_size and any(
            not 0 <= id_ < vocab_size for id_ in generation.submit.stop_token_ids
        ):
            raise ValueError(f"There are stop token ids outside 0..{vocab_size - 1}.")
        max_context = self._config.max_context
        if max_context and len(ids) + min(1, generation.submit.max_new_tokens) > max_context:
            raise ValueError(
                f"The prompt has {len(ids)} tokens; the model's context is {max_context}."
            )
        self._check_key(generation.submit)

    def _check_key(self, submit: Submit) -> None:
        """Raises ValueError for a prompt that cannot be salted, or must not be."""
        if submit.cache_key is None:
            return
        if not self._pipeline.supports_cache_salt:
            raise ValueError("This model's prompts cannot be kept apart in its prefix cache.")
        # The engine would write to the logits of salted ids, which have none.
        if submit.beams is not None and submit.beams.no_repeat_ngram_size:
            raise ValueError("What must not repeat cannot be found in a salted prompt.")

    def _watch(self, submit: Submit, spec: LogitsSpec, prompt_ids: TokenArray) -> Watch:
        """Raises ValueError for what this engine cannot do, or not with these arguments."""
        if not self._pipeline.has_logits_hook:
            raise ValueError("The logits of this model cannot be seen or changed.")
        if spec.prompt_logprobs is not None and not self._pipeline.can_score:
            raise ValueError(
                "This model's prompts cannot be scored while enable_prefix_caching is on."
            )
        check_ids(spec, self._pipeline.vocab_size)
        processors = (
            []
            if spec.processor_args is None
            else make_processors(self._processors, spec.processor_args)
        )
        return Watch(submit, prompt_ids, processors)

    def _judge(self, generation: Generation, refusal: str | None) -> None:
        if generation not in self._checking:
            return  # cancelled meanwhile
        self._checking.discard(generation)
        if refusal is None:
            self._accept(generation)
        else:
            self._end(generation)
            text = f"The grammar cannot be compiled: {refusal}"
            generation.reject(InvalidGrammar.code or "", text)

    def _accept(self, generation: Generation) -> None:
        self._waiting.add(generation)
        self._outbox.accept(generation)

    # Who runs

    def _admit(self) -> None:
        if self._must_end():
            return  # those who wait will be sent to the next process
        while self._waiting and self._batch.has_room and self._batch.may_join(self._waiting.first):
            broken = self._batch.add(self._waiting.pop())
            if broken is not None:
                self._fail(broken)

    def _must_end(self) -> bool:
        """Whether no quiet moment to end in has come for too long."""
        return self._grammars.fullness > 2

    def _end_when_full(self) -> None:
        """Nobody runs. Raises `PipelineBroken` where the compiled grammars, of which the
        library lets go with the process only, take too much memory."""
        if self._must_end() or (self._grammars.fullness > 1 and not self._alive):
            raise PipelineBroken("compiled grammars take up too much memory; it starts anew")

    def _expire(self) -> None:
        now = time.monotonic()
        if now < self._next_expiry_at:
            return
        self._next_expiry_at = now + _EXPIRY_INTERVAL_S
        for generation in [each for each in self._alive.values() if each.deadline < now]:
            self._drop(generation)
            generation.reject(
                DeadlineExceeded.code or "",
                f"The request ran longer than {generation.submit.deadline_s:g} s.",
            )

    def _cancel(self, connection: Connection, id_: int, num_used: int) -> None:
        generation = self._alive.get((id(connection), id_))
        if generation is not None:
            self._drop(generation)
        num_unused = self._ended.num_unused(connection, id_, num_used)
        self._num_output_tokens -= num_unused
        self._num_unused_tokens += num_unused

    def _drop(self, generation: Generation) -> None:
        """Forget a generation, wherever it is."""
        self._waiting.discard(generation)
        self._checking.discard(generation)
        self._batch.remove(generation)
        self._outbox.forget(generation)
        self._end(generation)

    def _grant(self, connection: Connection, grant: Grant) -> None:
        generation = self._alive.get((id(connection), grant.id))
        if generation is None or generation.submit.beams is not None:
            return
        generation.num_granted, generation.is_last_grant = grant.num_tokens, grant.is_last
        if len(generation.tokens) < grant.num_tokens:
            if generation.is_paused:
                self._batch.resume(generation)
                self._waiting.put_back(generation)
        elif grant.is_last:
            self._waiting.discard(generation)
            self._checking.discard(generation)
            self._batch.remove(generation)
            self._outbox.add(Made(generation, [], FINISH_LENGTH, []))
            self._end(generation)

    def _forget(self, connection: Connection) -> None:
        mine = [each for each in self._alive.values() if each.connection is connection]
        for generation in mine:
            self._drop(generation)
        self._ended.lose(connection)

    def _end(self, generation: Generation) -> None:
        self._alive.pop(_key(generation), None)
        if generation.tokens and generation.connection is not None:
            self._ended.add(generation)

    # What is made

    def _take_step(self, step: Step) -> None:
        self._num_steps += 1
        if self._energy is not None:
            is_end = any(made.finish is not None for made in step.made)
            self._energy.note(step.works, is_end=is_end)
        for made in step.made:
            self._count(made.generation, len(made.token_ids))
            self._outbox.add(made)
            if made.finish is not None:
                self._end(made.generation)
        if step.made:
            self._last_token_at = time.monotonic()
        self._outbox.send(num_streams=len(self._batch), at_once=bool(step.broken))
        for broken in step.broken:
            self._fail(broken)

    def _count(self, generation: Generation, num_tokens: int) -> None:
        if generation.connection is None:
            return
        if not generation.tokens:
            self._num_prompt_tokens += len(generation.prompt_ids)
            self._num_cached_tokens += generation.num_cached or 0
        self._num_output_tokens += num_tokens

    def _fail(self, broken: Broken) -> None:
        if broken.generation.connection is None:
            raise PipelineBroken(f"the engine's own probe failed: {broken.message}")
        self._end(broken.generation)
        broken.generation.reject(broken.code, broken.message)

    def _probe_when_idle(self) -> None:
        last = self._last_token_at
        if last is None or time.monotonic() - last > PROBE_INTERVAL_S:
            self._batch.add(Generation.of(None, _PROBE))

    def _reject_all(self) -> None:
        self._outbox.send(num_streams=0, at_once=True)
        for generation in list(self._alive.values()):
            generation.reject(ModelNotReady.code or "", "The model is being unloaded.")

    # What is told

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
            can_score_prompts=self._pipeline.can_score,
            has_processors=bool(self._processors),
            supports_cache_salt=self._pipeline.supports_cache_salt,
        )

    def _stats(self) -> EngineStats:
        last = self._last_token_at
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
            energy_j=None if self._energy is None else self._energy.totals.used_j,
            request_energy_j=None if self._energy is None else self._energy.totals.told_j,
        )


def _key(generation: Generation) -> _Key:
    return id(generation.connection), generation.submit.id
