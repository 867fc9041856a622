"""One generation in the engine process, from its arrival to its end."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
from msgspec import structs

from serving.engine.energy.share import Share
from serving.engine.pipeline import Handle, TokenArray
from serving.engine.watch import Watch
from serving.transport.messages import Rejected, Submit, TokenLogprobs, TokenOutput
from serving.transport.server import Connection


@dataclass(slots=True, eq=False)
class Generation:
    """Mutable by the loop alone. Times are of the monotonic clock, in seconds.

    After a failed step a generation is added to the pipeline again. It then either goes
    on from prompt + tokens so far, or is replayed: made anew from its prompt with the
    same seed while `num_to_replay` known tokens are compared instead of sent. Replaying
    is exact where the past counts (grammar state, penalties).
    """

    connection: Connection | None  # None: the engine's own probe
    submit: Submit
    prompt_ids: TokenArray
    arrived_at: float = field(default_factory=time.monotonic)
    first_step_at: float | None = None
    num_cached: int | None = None
    tokens: list[int] = field(default_factory=list)  # all that were made
    num_sent: int = 0  # of these, how many the gateway has been told
    finish: str | None = None
    has_spoken: bool = False  # the gateway has had its first output
    handle: Handle | None = None
    num_to_replay: int = 0
    num_drops: int = 0  # how often the pipeline's cache was too small for it
    is_proven: bool = False  # it took part in a good step since it was last added
    # What the pipeline was given when it was last added, and what it has made of that.
    added_ids: TokenArray = field(default_factory=lambda: np.zeros(0, np.int64))
    is_echoed: bool = False
    # How much of that had been read after the first step that read a part of it, and by now.
    first_stop: int | None = None
    num_read: int = 0
    is_abandoned: bool = False  # nobody wants it, but its prompt has to be read to the end
    made: list[int] = field(default_factory=list)
    # Of a search by beams: the answers beside its own.
    others: list[Generation] = field(default_factory=list)
    watch: Watch | None = None  # set exactly when the request has to do with logits
    logprobs: list[TokenLogprobs] = field(default_factory=list)  # of `tokens`, if asked for
    num_granted: int | None = None  # tokens that it may make for now; None: all it asked for
    is_last_grant: bool = False  # it ends with them, and does not wait for more
    is_paused: bool = False  # it has made them, and has left the batch
    max_ahead: int = 0  # tokens that may be proposed ahead of it in one step
    num_ahead: int = 0  # that are proposed in the step that is under way
    num_proposed: int = 0  # of these all so far, and how many were taken
    num_accepted: int = 0
    is_beam_grown: bool = False  # in the step that is under way
    num_computed: int = 0  # tokens that the step under way computes for it
    share: Share | None = None  # of the energy; None: nothing is measured, or not yet
    # What went wrong with it alone in the step that is under way.
    failure: Exception | None = None

    @classmethod
    def of(cls, connection: Connection | None, submit: Submit) -> Generation:
        """Raises ValueError when the prompt is not a whole number of token ids."""
        ids = np.frombuffer(submit.prompt_ids, dtype="<i4").astype(np.int64)
        generation = cls(connection, submit, ids)
        if submit.beams is None:
            generation.num_granted = submit.num_granted
        for id_ in submit.ids[1:]:
            other = structs.replace(submit, id=id_, beams=None)
            # They share its prompt, which counts once.
            generation.others.append(cls(connection, other, ids[:0]))
        return generation

    @property
    def num_known(self) -> int:
        """Tokens that the pipeline has of it."""
        return len(self.added_ids) + len(self.made)

    @property
    def is_answering(self) -> bool:
        """Whether the pipeline has read its prompt to the end."""
        return bool(self.made)

    @property
    def width(self) -> int:
        """How many answers are being written side by side."""
        return 1 if self.submit.beams is None else self.submit.beams.width

    def token_at(self, position: int) -> int | None:
        """A token that the pipeline has of it. What beams are made of nobody is told."""
        num_added = len(self.added_ids)
        if position < num_added:
            return int(self.added_ids[position])
        return self.made[position - num_added] if self.submit.beams is None else None

    @property
    def deadline(self) -> float:
        """When it must have ended."""
        return self.arrived_at + self.submit.deadline_s

    @property
    def num_to_make(self) -> int:
        """Tokens still allowed."""
        return self.submit.max_new_tokens - len(self.tokens)

    @property
    def must_replay(self) -> bool:
        """Whether tokens so far cannot simply become part of the prompt."""
        sampling = self.submit.sampling
        has_penalty = sampling.frequency_penalty != 0 or sampling.presence_penalty != 0
        return bool(self.tokens) and (self.submit.grammar is not None or has_penalty)

    def output(self) -> TokenOutput:
        """What is new, as the gateway learns of it; the first time with how it began."""
        unsent = tuple(self.tokens[self.num_sent :])
        logprobs = tuple(self.logprobs[self.num_sent :])
        energy_j = None if self.share is None else self.share.tell()
        self.num_sent = len(self.tokens)
        if self.has_spoken or self.first_step_at is None:
            return TokenOutput(
                self.submit.id,
                unsent,
                self.finish,
                logprobs=logprobs,
                num_proposed=self.num_proposed,
                num_accepted=self.num_accepted,
                energy_j=energy_j,
            )
        self.has_spoken = True
        return TokenOutput(
            self.submit.id,
            unsent,
            self.finish,
            queue_s=self.first_step_at - self.arrived_at,
            prefill_s=time.monotonic() - self.first_step_at,
            num_cached_tokens=self.num_cached or 0,
            logprobs=logprobs,
            prompt_logprobs=self._prompt_logprobs,
            num_proposed=self.num_proposed,
            num_accepted=self.num_accepted,
            energy_j=energy_j,
        )

    @property
    def _prompt_logprobs(self) -> tuple[TokenLogprobs, ...] | None:
        spec = self.submit.logits
        if self.watch is None or spec is None or spec.prompt_logprobs is None:
            return None
        return tuple(self.watch.prompt_logprobs)

    def reject(self, code: str, message: str) -> None:
        """Tell the gateway that there will be no finish."""
        if self.connection is not None:
            self.connection.send(Rejected(self.submit.id, code, message))
