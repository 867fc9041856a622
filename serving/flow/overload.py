"""Refuses a request at its arrival if it would wait too long for the engine.

A queue that only grows serves no request in time. The engine reports what waits of each API key and
how fast that is served. From this follows how long a new request of a key would wait, also while
other keys ask for more than their share (Little's law: what is in front, by the pace). A request
that would wait too long is refused before any work is done for it.

What is too long depends on why there is a queue, because none of these may be mistaken for another:

- A burst: much comes at once for a key that has used little of the engine of late. It will be
  served, so its wait may be seconds. What remains of them becomes less while the queue stands.
- A steady queue: hundreds of clients that each wait for an answer before they ask again. As many
  requests come as answers end, and the queue does not grow. The wait may be as long as an answer.
- Overload: more comes than ends, after a time in which the engine was well used. Whatever the queue
  may hold will stand in it, and each request that is admitted waits as long as the limit allows. So
  the limit is what a first token takes anyway, and the queue is only as long as keeps the engine
  busy.

A key is judged without the one that uses most beside it: that key is alone responsible for its
queue, and others take turns with it.

A refused request that comes back at the time that it got may wait as in a steady queue.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from typing import Final, Protocol, Self

from vinery_serving.core.errors import Overloaded
from vinery_serving.flow.meter import Meter
from vinery_serving.flow.returns import Returns
from vinery_serving.transport.messages import Load

Lane = tuple[int, int]  # the ids of the organisation and of the key

# The longest wait in a burst, in a steady queue and in an overload. The last two are longer for
# models whose answers and first tokens take longer.
_BURST_LIMIT_S: Final = 20.0
_STEADY_LIMIT_S: Final = 1.0
_OVERLOAD_LIMIT_S: Final = 0.15
# The longest wait until pictures are encoded. It holds up no request without pictures.
_ENCODING_LIMIT_S: Final = 60.0
# For keys that have used a smaller part of the engine (`serving/engine/recent_use`) it is a burst.
_BURST_PART: Final = 0.5
# A queue is steady while not many more requests come than end. Refused ones have come, too: with a
# lower ratio a few refusals would be a reason for further ones, at a load that can be served.
_STEADY_RATIO: Final = 1.5
# Arrivals and ends are counted for as long as an answer takes, and at least so long.
_LEAST_FLOW_S: Final = 1.0
_MAX_RETRY_S: Final = 60
# Refused clients return at half of the pace at most: the other half is left for new ones.
_RETURNING_PART: Final = 0.5
_LOOK_INTERVAL_S: Final = 0.02


class LoadSource(Protocol):
    """The client of an engine."""

    @property
    def load(self) -> Load | None:
        """The engine's newest report; None: there is none."""


class Flow:
    """Arrivals and ends of the last moment: older ones count less."""

    def __init__(self) -> None:
        self._num_arrived = 0.0
        self._num_ended = 0.0
        self._at = 0.0

    def note(self, now: float, duration_s: float, *, arrived: int = 0, ended: int = 0) -> None:
        """Note requests. What happened `duration_s` ago counts less by a factor of e."""
        if (passed_s := now - self._at) > _LOOK_INTERVAL_S:
            kept = math.exp(-passed_s / duration_s)
            self._num_arrived *= kept
            self._num_ended *= kept
            self._at = now
        self._num_arrived += arrived
        self._num_ended += ended

    @property
    def is_rising(self) -> bool:
        """Whether more requests come than end. One more is no sign of it."""
        return self._num_arrived > _STEADY_RATIO * self._num_ended + 1


class OverloadGate:
    """The requests of this process that are on their way to one engine."""

    def __init__(self, client: LoadSource, name: str, max_queue_s: float) -> None:
        """`max_queue_s` is the longest expected wait; 0: it follows from the load."""
        self._client = client
        self._name = name
        self._max_queue_s = max_queue_s
        # Those that the engine has not accepted yet, by the meter's `id`.
        self._coming: dict[int, tuple[Meter, Lane]] = {}
        self._num_coming: Counter[Lane] = Counter()
        self._next_look_at = 0.0
        self._flow = Flow()
        self._last_return_at: dict[Lane, float] = {}  # of the refused clients of a lane
        self._returns = Returns()

    def enter(
        self, lane: Lane, meter: Meter, *, is_expected: bool = False, has_media: bool = False
    ) -> Passage:
        """Let a request through until its passage is closed. Raises `Overloaded`.

        `is_expected`: what `check` has returned. `has_media`: it needs no engine for now, and is
        counted from `Passage.set_out` on. Its files may be fetched and decoded for many seconds,
        and may be refused: others would be refused for a queue that there is not.
        """
        self._note(arrived=1)
        if self._is_late(lane, is_expected=is_expected):
            raise self._refusal(lane)
        if has_media and (wait_s := self.encoding_wait_s(lane)) > self._encoding_limit_s:
            raise self._refused(min(math.ceil(wait_s), _MAX_RETRY_S))
        passage = Passage(self, lane, meter)
        if not has_media:
            passage.set_out()
        return passage

    def expect(self, lane: Lane, meter: Meter) -> None:
        """Count a request as one that the engine will get."""
        if id(meter) not in self._coming:
            self._coming[id(meter)] = meter, lane
            self._num_coming[lane] += 1

    def end(self, meter: Meter) -> None:
        """The request of a passage has ended."""
        self._leave(meter)
        self._note(ended=1)

    @property
    def may_refuse(self) -> bool:
        """Whether something waits, so that a look at a new request is worth its time."""
        load = self._client.load
        if load is None:
            return False
        return bool(load.waiting or load.prefill_s) or len(self._coming) > load.num_free

    def check(self, lane: Lane, body: bytes) -> bool:
        """Return whether a request comes back after a refusal at the time that it got. Raise
        `Overloaded` for another one as `enter` would, before it is read."""
        if self._returns.take(lane, body, time.monotonic()):
            return True
        if self._is_late(lane):
            self._note(arrived=1)
            raise self._refusal(lane, body)
        return False

    def expected_wait_s(self, lane: Lane) -> float:
        """Return how long a new request of this lane would wait; 0 while that is unknown."""
        load = self._client.load
        if load is None or not load.tokens_per_s:
            return 0.0
        waiting: Counter[Lane] = Counter()
        for organization, key, num_tokens in load.waiting:
            waiting[organization, key] += math.ceil(num_tokens)
        self._forget_accepted()
        num_coming = len(self._coming)
        # The part of them that will find no free slot. While prompts wait for others, all do.
        num_waiting = num_coming if load.prefill_s else max(0, num_coming - load.num_free)
        part = num_waiting / max(1, num_coming)
        for each, num in self._num_coming.items() if part else ():
            waiting[each] += math.ceil(num * part * load.mean_tokens)
        return _num_ahead(lane, waiting, load.mean_tokens) / load.tokens_per_s

    def encoding_wait_s(self, lane: Lane) -> float:
        """Return how long a new request with pictures of this lane would wait until they are
        encoded; 0 while none waits for it."""
        load = self._client.load
        if load is None or not load.encoding:
            return 0.0
        waiting = Counter({(org, key): num for org, key, num in load.encoding})
        return _num_ahead(lane, waiting, 1) * load.encoding_s

    def retry_after_s(self, lane: Lane, body: bytes | None = None) -> int:
        """Return after how many seconds a refused client of this lane should come back.

        Until then those in front of it are served, and those that were refused before it. They wait
        at their clients instead of in the queue, so each gets a later time than the one before. The
        request with this `body` is then not treated as new (`check`).
        """
        now = time.monotonic()
        self._forget_returns(now)
        due_at = self._next_return_at(lane, now)
        if due_at > now + _MAX_RETRY_S:
            return random.randint(_MAX_RETRY_S // 2, _MAX_RETRY_S)
        self._last_return_at[lane] = due_at
        if body is not None:
            self._returns.expect(lane, body, due_at)
        return max(1, math.ceil(due_at - now))

    def _next_return_at(self, lane: Lane, now: float) -> float:
        """Return when the next refused client of a lane finds room."""
        load = self._client.load
        due_at = now + self.expected_wait_s(lane)
        if load is None or not load.tokens_per_s:
            return due_at
        num_lanes = max(1, len({lane, *((org, key) for org, key, _ in load.waiting)}))
        service_s = load.mean_tokens / load.tokens_per_s * num_lanes / _RETURNING_PART
        return max(due_at, self._last_return_at.get(lane, 0.0) + service_s)

    def _forget_returns(self, now: float) -> None:
        """Forget times that are past, and all that were named before the last quiet moment."""
        is_rising = self._flow.is_rising
        self._last_return_at = {
            each: at for each, at in self._last_return_at.items() if is_rising and at > now
        }
        if not is_rising:
            self._returns.clear()

    def _forget_accepted(self) -> None:
        """Leave those to the engine that it has accepted. Hundreds may come at once, so not each
        of them looks at all."""
        now = time.monotonic()
        if now < self._next_look_at:
            return
        self._next_look_at = now + _LOOK_INTERVAL_S
        for meter, _ in list(self._coming.values()):
            if meter.is_accepted:
                self._leave(meter)

    def _leave(self, meter: Meter) -> None:
        _, lane = self._coming.pop(id(meter), (None, None))
        if lane is not None:
            self._num_coming[lane] -= 1
            if not self._num_coming[lane]:
                del self._num_coming[lane]

    def _note(self, *, arrived: int = 0, ended: int = 0) -> None:
        load = self._client.load
        duration_s = max(_LEAST_FLOW_S, 0.0 if load is None else load.answer_s)
        self._flow.note(time.monotonic(), duration_s, arrived=arrived, ended=ended)

    def _is_late(self, lane: Lane, *, is_expected: bool = False) -> bool:
        """Whether a new request would wait too long."""
        load = self._client.load
        if load is None or not self.may_refuse:
            return False
        wait_s = self.expected_wait_s(lane)
        return wait_s > 0 and wait_s > self._limit_s(lane, load, is_expected=is_expected)

    def _refusal(self, lane: Lane, body: bytes | None = None) -> Overloaded:
        return self._refused(self.retry_after_s(lane, body))

    def _refused(self, retry_s: int) -> Overloaded:
        error = Overloaded(
            f"The model {self._name} has more requests than it can serve soon. Try again in "
            f"{retry_s} s."
        )
        error.retry_after_s = retry_s
        return error

    @property
    def _encoding_limit_s(self) -> float:
        """Beside streams pictures are encoded one by one, with pauses."""
        return self._max_queue_s or _ENCODING_LIMIT_S

    def _limit_s(self, lane: Lane, load: Load, *, is_expected: bool) -> float:
        if self._max_queue_s:
            return self._max_queue_s
        steady_s = max(_STEADY_LIMIT_S, load.answer_s)
        if _used_part(lane, load) < _BURST_PART:
            return max(steady_s, _BURST_LIMIT_S - _standing_s(lane, load))
        if is_expected or not self._flow.is_rising:
            return steady_s
        return max(_OVERLOAD_LIMIT_S, load.first_token_s) - load.prefill_s


class Passage:
    """A request that a gate has let through. Close it once: it is a context manager."""

    __slots__ = ("_gate", "_lane", "_meter")

    def __init__(self, gate: OverloadGate, lane: Lane, meter: Meter) -> None:
        self._gate = gate
        self._lane = lane
        self._meter = meter

    def set_out(self) -> None:
        """The request is on its way to the engine: call it before the engine gets it."""
        self._gate.expect(self._lane, self._meter)

    def close(self) -> None:
        self._gate.end(self._meter)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _used_part(lane: Lane, load: Load) -> float:
    """Return what part of the engine all lanes have used of late, but the one that has used most
    beside this."""
    most = next((part for org, key, part in load.used if (org, key) != lane), 0.0)
    return sum(part for _, _, part in load.used) - most


def _standing_s(lane: Lane, load: Load) -> float:
    """Return for how long there is a queue, of which this lane has the largest part; 0: another
    lane has."""
    is_other = any((org, key) != lane for org, key, _ in load.waiting[:1])
    return 0.0 if is_other else load.waiting_s


def _num_ahead(lane: Lane, waiting: Counter[Lane], cost: float) -> float:
    """Return how many waiting tokens are served before a new request of this lane.

    Lanes take turns: another lane is ahead with no more than this one has, its request included,
    and so is another organisation.
    """
    own = waiting[lane]
    of_organizations: Counter[int] = Counter()
    own_organization = float(own)
    for each, num_tokens in waiting.items():
        if each[0] != lane[0]:
            of_organizations[each[0]] += num_tokens
        elif each != lane:
            own_organization += min(num_tokens, own + cost)
    others = sum(min(num, own_organization + cost) for num in of_organizations.values())
    return own_organization + others
