"""One generation in the engine process, from its arrival to its end, and the wait queue."""

from __future__ import annotations

import time
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec import structs

from serving.engine.energy.meter import RequestEnergy
from serving.engine.logits_handler import LogitsHandler
from serving.engine.pipeline import Handle
from serving.engine.prefix_cache import Prefill, TokenArray
from serving.transport.messages import Rejected, Submit, TokenLogprobs, TokenOutput
from serving.transport.server import Connection


@dataclass(slots=True, eq=False)
class Generation:
    """The state of a generation. Only the engine's thread changes it.

    Times are of the monotonic clock, in seconds. After a failed step a generation is added to
    the pipeline again. It continues from its prompt and tokens so far, or it is replayed:
    generated again from its prompt with the same seed, while `num_to_replay` known tokens are
    compared and not sent. A replay is exact where earlier tokens count (grammar, penalties).
    """

    connection: Connection | None  # None: the engine's own probe
    submit: Submit
    prompt_ids: TokenArray  # int64, (num_prompt_tokens,)
    arrived_at: float = field(default_factory=time.monotonic)
    first_step_at: float | None = None
    num_cached: int | None = None  # tokens of the prompt that the prefix cache had
    tokens: list[int] = field(default_factory=list)  # all generated tokens
    num_sent: int = 0  # of them, sent to the gateway
    finish: str | None = None
    has_sent_output: bool = False
    logprobs: list[TokenLogprobs] = field(default_factory=list)  # of `tokens`, if asked for
    handle: Handle | None = None
    num_to_replay: int = 0
    num_drops: int = 0  # how often the KV cache was too small for it
    is_proven: bool = False  # it took part in a good step since it was last added
    # What the pipeline got when it was last added, and what it has generated from that.
    added_ids: TokenArray = field(default_factory=lambda: np.zeros(0, np.int64))
    generated: list[int] = field(default_factory=list)
    is_echoed: bool = False
    first_chunk_end: int | None = None  # see `Prefill`
    num_prefilled: int = 0
    is_abandoned: bool = False  # cancelled, but its prompt must be prefilled to the end
    other_beams: list[Generation] = field(default_factory=list)  # beside this, the likeliest
    logits: LogitsHandler | None = None  # set if the generation uses the logits hook
    num_granted: int | None = None  # tokens that it may generate for now; None: all
    is_last_grant: bool = False  # it finishes at `num_granted`, and does not pause
    is_paused: bool = False  # it has used its grant and left the batch
    max_draft_tokens: int = 0  # in one step
    num_drafted: int = 0  # draft tokens of the present step
    num_proposed: int = 0  # draft tokens of all steps
    num_accepted: int = 0  # of them
    is_beam_extended: bool = False  # in the present step
    num_computed: int = 0  # tokens that the present step computes for it
    energy: RequestEnergy | None = None  # None: not measured
    failure: Exception | None = None  # of this generation alone, in the present step

    @classmethod
    def of(cls, connection: Connection | None, submit: Submit) -> Generation:
        """Raises ValueError if the prompt's bytes are not int32 ids."""
        ids = np.frombuffer(submit.prompt_ids, dtype="<i4").astype(np.int64)
        generation = cls(connection, submit, ids)
        if submit.beams is None:
            generation.num_granted = submit.num_granted
        for id_ in submit.ids[1:]:
            other = structs.replace(submit, id=id_, beams=None)
            # The beams share one prompt, which counts once.
            generation.other_beams.append(cls(connection, other, ids[:0]))
        return generation

    @property
    def num_pipeline_tokens(self) -> int:
        """Tokens that the pipeline has of it."""
        return len(self.added_ids) + len(self.generated)

    @property
    def is_decoding(self) -> bool:
        """Whether its prompt is completely prefilled."""
        return bool(self.generated)

    @property
    def num_beams(self) -> int:
        """How many sequences the pipeline extends side by side."""
        return 1 if self.submit.beams is None else self.submit.beams.width

    @property
    def needs_hook(self) -> bool:
        """Whether every step of it needs the hook: for its logits, or to follow its beams."""
        return self.logits is not None or self.submit.beams is not None

    def token_at(self, position: int) -> int | None:
        """Return the token that the pipeline has there; None inside a beam search."""
        num_added = len(self.added_ids)
        if position < num_added:
            return int(self.added_ids[position])
        return self.generated[position - num_added] if self.submit.beams is None else None

    @property
    def must_score(self) -> bool:
        """Whether all tokens of its prompt must be computed for their log-probabilities."""
        return self.logits is not None and self.logits.must_score

    def next_prompt(self) -> tuple[TokenArray, int]:
        """Return the prompt to add, int64 `(num_tokens,)`, and how many tokens may follow it."""
        max_new_tokens = self.submit.max_new_tokens
        if self.num_to_replay or not self.tokens:
            return self.prompt_ids, max_new_tokens
        tokens = np.array(self.tokens, dtype=np.int64)
        return np.concatenate([self.prompt_ids, tokens]), max_new_tokens - len(self.tokens)

    def rewind(self) -> None:
        """Prepare to be added to the pipeline again."""
        self.handle = None
        self.is_proven = False
        self.generated = []
        self.failure = None
        if self.logits is not None:
            self.logits.restart()
        sampling = self.submit.sampling
        has_penalty = sampling.frequency_penalty != 0 or sampling.presence_penalty != 0
        must_replay = has_penalty or self.submit.grammar is not None
        self.num_to_replay = len(self.tokens) if must_replay else 0

    def prefill(self) -> Prefill:
        """Return how far the pipeline has prefilled its prompt."""
        key = self.submit.cache_key
        return Prefill(self.added_ids, self.first_chunk_end, self.num_prefilled, key)

    def output(self) -> TokenOutput:
        """Return the tokens that were not sent yet; the first output also has its timings."""
        unsent = tuple(self.tokens[self.num_sent :])
        logprobs = tuple(self.logprobs[self.num_sent :]) if self.logprobs else ()
        self.num_sent = len(self.tokens)
        queue_s = prefill_s = num_cached_tokens = prompt_logprobs = None
        if not self.has_sent_output and self.first_step_at is not None:
            self.has_sent_output = True
            queue_s = self.first_step_at - self.arrived_at
            prefill_s = time.monotonic() - self.first_step_at
            num_cached_tokens = self.num_cached or 0
            spec = self.submit.logits
            if self.logits is not None and spec is not None and spec.prompt_logprobs is not None:
                prompt_logprobs = tuple(self.logits.prompt_logprobs)
        return TokenOutput(
            self.submit.id,
            unsent,
            self.finish,
            queue_s,
            prefill_s,
            num_cached_tokens,
            logprobs,
            prompt_logprobs,
            self.num_proposed,
            self.num_accepted,
            None if self.energy is None else self.energy.take_unreported_j(),
        )

    def reject(self, code: str | None, message: str) -> None:
        """Send an error with a code of `core.errors`. The generation must have ended."""
        if self.connection is not None:
            self.connection.send(Rejected(self.submit.id, code or "", message))


class GeneratedTokens(msgspec.Struct, frozen=True):
    """New tokens of a generation. A Struct: one is built for every token, and a standard
    dataclass takes five times as long."""

    generation: Generation
    token_ids: list[int]
    finish: str | None
    logprobs: list[TokenLogprobs]


class FailedGeneration(NamedTuple):
    """A generation that cannot continue. `code` is the code of a `core.errors` class."""

    generation: Generation
    code: str
    message: str


class WaitQueue:
    """Admits the lowest priority number first, and equal priorities in order of arrival.

    A generation does not move ahead because it has waited long: while others with a lower number
    arrive, it may wait until its deadline, which counts from its arrival, and is then rejected.
    A full queue does not drop a generation for one of a better priority.
    """

    def __init__(self) -> None:
        # Sorted by priority and arrival. The number makes entries unique.
        self._entries: list[tuple[int, int, Generation]] = []
        self._entry_of: dict[Generation, tuple[int, int, Generation]] = {}
        self._numbers = count(1)

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, generation: Generation) -> None:
        """Add behind all generations of the same priority."""
        self._insert(generation, next(self._numbers))

    def put_back(self, generation: Generation) -> None:
        """Add one that has run before in front of all generations of the same priority."""
        self._insert(generation, -next(self._numbers))

    def _insert(self, generation: Generation, number: int) -> None:
        entry = self._entry_of[generation] = generation.submit.priority, number, generation
        insort(self._entries, entry)

    @property
    def first(self) -> Generation:
        """The next generation to admit. Raises IndexError if the queue is empty."""
        return self._entries[0][2]

    def pop(self) -> Generation:
        """Remove and return the first. Raises IndexError if the queue is empty."""
        generation = self.first
        self.discard(generation)
        return generation

    def discard(self, generation: Generation) -> None:
        """Remove a generation, if it is in the queue."""
        entry = self._entry_of.pop(generation, None)
        if entry is not None:
            del self._entries[bisect_left(self._entries, entry)]
