"""The running requests of a web process, and the shutdown, which refuses new requests.

All requests that have begun may finish, even while waiting for a slot or a limit. At the time
limit, or at a second signal, the rest is ended with `ShuttingDown`.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from vinery_accounts.usage.entries import Admission
from vinery_serving.core.errors import InvalidKey, RequestStopped, ServingError, ShuttingDown
from vinery_serving.gateway.engines.meter import Meter
from vinery_serving.models.live_socket import LiveRow, Stage

_POLL_S: Final = 0.1  # how often to look whether all requests are answered
LAST_ERRORS_S: Final = 1.5  # how long requests that are ended may take to send their errors


class Drain:
    """Belongs to the event loop, but a signal handler may call `begin`."""

    def __init__(self) -> None:
        self.is_begun = False
        self.is_replaced = False  # another process takes new requests
        self._is_urgent = False
        self._is_over = False  # the time of the requests that still run
        self._running: set[asyncio.Task[Any] | None] = set()

    def begin(self) -> None:
        """Refuse requests from now on. A second call ends the running requests."""
        self._is_urgent = self.is_begun
        self.is_begun = True

    @property
    def is_ending(self) -> bool:
        """Whether the process ends when its requests have ended."""
        return self.is_begun or self.is_replaced

    @property
    def ending(self) -> ShuttingDown | None:
        """The error with which a cancelled request ends; None: this process has not ended it."""
        return ShuttingDown() if self._is_over else None

    def enter(self) -> None:
        self._running.add(asyncio.current_task())

    def leave(self) -> None:
        self._running.discard(asyncio.current_task())

    async def finish(self, limit_s: float) -> None:
        """Wait until all requests are answered, or end them after `limit_s`."""
        await self._wait(limit_s)
        self._is_over = True
        for task in self._running:
            if task is not None:
                task.cancel()
        self._is_urgent = False
        await self._wait(LAST_ERRORS_S)

    async def _wait(self, limit_s: float) -> None:
        clock = asyncio.get_running_loop().time
        give_up_at = clock() + limit_s
        # At least once: a request may have arrived that is not read yet.
        await asyncio.sleep(min(_POLL_S, limit_s))
        while self._running and not self._is_urgent and clock() < give_up_at:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)


@dataclass(slots=True, eq=False)
class LiveRequest:
    request_id: str
    key_id: int | None
    meter: Meter
    task: asyncio.Task[None] | None
    admission: Admission | None = None  # set before the request is added to `LiveRequests`
    # The error with which the server ends the request; set before its task is cancelled.
    ending: ServingError | None = None

    def end(self, error: ServingError) -> bool:
        """Returns False for a request that is ended already."""
        if self.task is None or self.ending is not None:
            return False
        self.ending = error
        return self.task.cancel()

    def row(self) -> LiveRow | None:
        if self.admission is None or self.ending is not None:
            return None
        meter, tokens = self.meter, self.meter.tokens
        first_s = meter.first_token_s
        stage = Stage.PREFILLING if meter.is_prefilling else Stage.WAITING
        return LiveRow(
            self.admission,
            Stage.GENERATING if first_s is not None else stage,
            num_prompt_tokens=tokens.num_prompt_tokens,
            num_output_tokens=tokens.num_output_tokens,
            # Of the time since the first token.
            tokens_per_s=None
            if first_s is None
            else max(0, tokens.num_output_tokens - meter.num_answers)
            / max(meter.total_s - first_s, 0.1),
        )


class LiveRequests(set[LiveRequest]):
    def progress(self) -> list[tuple[str, int, int, int, int]]:
        """Return the id of each request, and the prompt, cached, output and reasoning tokens so
        far."""
        return [
            (
                each.request_id,
                tokens.num_prompt_tokens,
                tokens.num_cached_tokens,
                tokens.num_output_tokens,
                tokens.num_reasoning_tokens,
            )
            for each in self
            for tokens in (each.meter.billed_tokens,)
        ]

    def rows(self) -> list[LiveRow]:
        return [row for each in self if (row := each.row()) is not None]

    def stop(self, request_id: str, reason: str) -> bool:
        """End a request. Returns whether it runs in this process."""
        own = (each for each in self if each.request_id == request_id)
        return any(each.end(RequestStopped(reason)) for each in own)

    def end_of_inactive_keys(self, is_active: Callable[[int], bool]) -> None:
        for each in self:
            if each.key_id is not None and not is_active(each.key_id):
                each.end(
                    InvalidKey(
                        "This API key became inactive during the request: it has expired, or it, "
                        "its owner or its project is not active any more."
                    )
                )
