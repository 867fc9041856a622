"""Work for which nobody waits at a connection: background responses, and requests of the tier flex.

This work runs while nothing else does, and leaves the batch at the step after another request
arrives at a gateway: the last step ends while the gateway reads the request. So that this work
never starves, it may also run beside other requests for a small share of the time: a few seconds of
each minute.
"""

from typing import Final

from vinery_serving.engine.batch import Batch
from vinery_serving.engine.fair_queue import FairQueue
from vinery_serving.engine.generation import Generation

_SHARE: Final = 0.05  # of the time
_HOLD_S: Final = 0.02  # a gateway reads a short request in a few milliseconds, or refuses it
_WINDOW_S: Final = 3.0  # in one piece: shorter ones would only move work in and out


class LowTier:
    def __init__(self, batch: Batch, queue: FairQueue[Generation]) -> None:
        self.queue = queue
        self._batch = batch
        self._credit_s = 0.0
        self._looked_at = 0.0
        self._window_until = 0.0
        self._held_until = 0.0

    def hold(self, now: float) -> None:
        """Note that another request will come soon."""
        self._held_until = now + _HOLD_S

    def release(self) -> None:
        """Note that the request has come."""
        self._held_until = 0.0

    def held_s(self, now: float) -> float:
        return max(0.0, self._held_until - now)

    def may_run(self, now: float, *, is_other_waiting: bool) -> bool:
        """Whether this work may be in the next step."""
        elapsed_s, self._looked_at = now - self._looked_at, now
        if not (is_other_waiting or self._batch.runs_others or self.held_s(now)):
            return True
        if now < self._window_until:
            return True
        if self.queue or self._batch.runs_low_tier:
            self._credit_s += _SHARE * min(elapsed_s, _WINDOW_S)
        if self._credit_s < _WINDOW_S:
            return False
        self._credit_s, self._window_until = 0.0, now + _WINDOW_S
        return True
