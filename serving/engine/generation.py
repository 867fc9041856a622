"""One generation in the engine process, from its arrival to its end."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

from serving.engine.pipeline import Handle, TokenArray
from serving.transport.messages import Rejected, Submit, TokenOutput
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

    @classmethod
    def of(cls, connection: Connection | None, submit: Submit) -> Generation:
        """Raises ValueError when the prompt is not a whole number of token ids."""
        ids = np.frombuffer(submit.prompt_ids, dtype="<i4").astype(np.int64)
        return cls(connection, submit, ids)

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
        self.num_sent = len(self.tokens)
        if self.has_spoken or self.first_step_at is None:
            return TokenOutput(self.submit.id, unsent, self.finish)
        self.has_spoken = True
        queue_s = self.first_step_at - self.arrived_at
        return TokenOutput(self.submit.id, unsent, self.finish, queue_s, self.num_cached or 0)

    def reject(self, code: str, message: str) -> None:
        """Tell the gateway that there will be no finish."""
        if self.connection is not None:
            self.connection.send(Rejected(self.submit.id, code, message))
