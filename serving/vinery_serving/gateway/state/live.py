"""The requests that run in this process."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from vinery_serving.core.errors import InvalidKey, ServingError
from vinery_serving.gateway.engines.meter import Meter

# A client that accepts no byte for this long is gone, whatever the state of its socket.
SEND_TIMEOUT_S: Final = 60.0


@dataclass(slots=True, eq=False)
class LiveRequest:
    request_id: str
    key_id: int | None
    meter: Meter
    task: asyncio.Task[None] | None
    # The error with which the server ends the request; set before its task is cancelled.
    ending: ServingError | None = None
    sending_since: float | None = None  # monotonic; None: not waiting for the client


class LiveRequests(set[LiveRequest]):
    """All running requests: admitted, and not settled. Belongs to the event loop."""

    def progress(self) -> list[tuple[str, int, int, int, int]]:
        """Return the id of each, and its prompt, cached, output and reasoning tokens so far."""
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

    def end_of_inactive_keys(self, is_active: Callable[[int], bool]) -> None:
        for each in self:
            if each.key_id is None or each.task is None or each.ending is not None:
                continue
            if not is_active(each.key_id):
                each.ending = InvalidKey(
                    "This API key became inactive during the request: it has expired, or it, its "
                    "owner or its project is not active any more."
                )
                each.task.cancel()

    def end_stalled(self) -> None:
        """End the requests whose clients have accepted no data for `SEND_TIMEOUT_S`."""
        now = time.monotonic()
        for each in self:
            since = each.sending_since
            if since is not None and now - since > SEND_TIMEOUT_S and each.task is not None:
                each.task.cancel()
