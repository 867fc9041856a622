"""The requests that are running in this process: for the ledger, and to end the stuck."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from accounts.usage.ledger import UsageLedger
from serving.core.errors import InvalidKey, ServingError
from serving.flow.meter import Meter

# A client that takes no byte for this long is gone, whatever its socket says.
SEND_TIMEOUT_S: Final = 60.0


@dataclass(slots=True, eq=False)
class LiveRequest:
    """One request between its admission and its settlement."""

    request_id: str
    key_id: int | None
    meter: Meter
    task: asyncio.Task[None] | None
    # Why it is ended although its client waits; set before its task is cancelled.
    ending: ServingError | None = None
    sending_since: float | None = None  # monotonic; None: not waiting for the client


class LiveRequests:
    """Looked at once a second."""

    def __init__(self, ledger: UsageLedger) -> None:
        self._ledger = ledger
        self._requests: set[LiveRequest] = set()

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: LiveRequest) -> None:
        """It has been admitted."""
        self._requests.add(request)

    def remove(self, request: LiveRequest) -> None:
        """It has been settled."""
        self._requests.discard(request)

    def end_of_keys(self, is_open: Callable[[int], bool]) -> None:
        """End the requests of keys that open the door no more."""
        for each in self._requests:
            if each.key_id is None or each.task is None or each.ending is not None:
                continue
            if not is_open(each.key_id):
                each.ending = InvalidKey(
                    "This API key was stopped while it was used: it has expired, or it, its owner "
                    "or its project is not active any more."
                )
                each.task.cancel()

    def tick(self) -> None:
        """Note in the ledger how far everybody is, and end who cannot be sent to."""
        if not self._requests:
            return
        self._ledger.checkpoint([_counts(each) for each in self._requests])
        now = time.monotonic()
        for each in self._requests:
            since = each.sending_since
            if since is not None and now - since > SEND_TIMEOUT_S and each.task is not None:
                each.task.cancel()


def _counts(request: LiveRequest) -> tuple[str, int, int, int, int]:
    meter = request.meter
    return (
        request.request_id,
        meter.num_billed_prompt_tokens,
        meter.num_cached_tokens,
        meter.num_output_tokens,
        meter.num_reasoning_tokens,
    )
