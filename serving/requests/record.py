"""One request in the books: admitted when it is understood, settled exactly once."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime

from msgspec import structs

from accounts.keys.table import Caller
from accounts.usage.entries import Admission, Outcome, Settlement
from serving.core.errors import ServingError
from serving.core.request import Endpoint
from serving.flow.meter import Meter
from serving.protocols.common.encoding import error_body
from serving.requests.capture import CapturedExchange
from serving.requests.reservation import Reservation
from serving.runtime.live import LiveRequest
from serving.runtime.runtime import Runtime

log = logging.getLogger(__name__)


class RequestRecord:
    """`admit`, then exactly one of `succeed`, `fail` and `leave`; later ones do nothing."""

    def __init__(
        self,
        runtime: Runtime,
        caller: Caller,
        *,
        request_id: str,
        endpoint: Endpoint,
        dialect: str,
        address: str | None = None,
        client_request_id: str = "",
        body: bytes = b"",
    ) -> None:
        self._runtime = runtime
        self._is_settled = False
        self.meter = Meter()
        self.reservation = Reservation(runtime.limits, caller, request_id)
        self._num_response_bytes = 0
        self._recording = CapturedExchange(body) if caller.captures and body else None
        self.live = LiveRequest(request_id, caller.key_id, self.meter, asyncio.current_task())
        self._admission = Admission(
            request_id=request_id,
            user_id=caller.user_id,
            username=caller.username,
            key_id=caller.key_id,
            key_name=caller.key_name,
            model="",
            endpoint=endpoint,
            dialect=dialect,
            is_streamed=False,
            started_at=datetime.now(UTC),
            project_id=caller.project_id,
            project_name=caller.project_name,
            organization_id=caller.organization_id,
            organization_name=caller.organization_name,
            ip=address,
            client_request_id=client_request_id,
            num_request_bytes=len(body),
        )

    def admit(self, *, model: str, is_streamed: bool) -> None:
        """From here on there will be a row, even if this process is killed."""
        self._admission = structs.replace(
            self._admission, model=model, asked_model=model, is_streamed=is_streamed
        )
        self._runtime.ledger.admit(self._admission)
        self._runtime.live.add(self.live)

    def name_model(self, name: str) -> None:
        """The model that really serves, when the client named none."""
        if name != self._admission.model:
            self._admission = structs.replace(self._admission, model=name)
            # Again, because the books of a killed process are closed from what was told.
            self._runtime.ledger.admit(self._admission)
        if self._recording is not None:
            self._recording.model = name

    def answered(self, data: bytes) -> None:
        """These bytes of the answer are about to be sent. Before it is settled."""
        self._num_response_bytes += len(data)
        if self._recording is not None:
            self._recording.answered(data)

    def succeed(self) -> None:
        """The whole answer was sent."""
        self._settle(Outcome.OK, 200)

    def fail(self, error: ServingError) -> None:
        """The request was refused, or its engine failed."""
        outcome = Outcome.REJECTED if error.status < 500 else Outcome.FAILED
        if self._recording is not None and not self._recording.num_answer_bytes:
            self._recording.answered(error_body(error))  # as the edge tells it
        self._settle(outcome, error.status, error.code or "")

    def leave(self) -> None:
        """The client went away, or the server is shutting down."""
        self._settle(Outcome.CLIENT_GONE, 499)

    def _settle(self, outcome: Outcome, http_status: int, error_code: str = "") -> None:
        if self._is_settled:
            return
        self._is_settled = True
        self._runtime.live.remove(self.live)
        meter = self.meter
        self.reservation.settle(meter)
        log.info(
            "request id=%s user=%s model=%s endpoint=%s/%s status=%d outcome=%s prompt=%d "
            "cached=%d output=%d first_token_ms=%s total_ms=%s",
            self._admission.request_id,
            self._admission.username,
            ascii(self._admission.model[:128]),
            self._admission.dialect,
            self._admission.endpoint,
            http_status,
            outcome,
            meter.num_prompt_tokens,
            meter.num_cached_tokens,
            meter.num_output_tokens,
            _ms(meter.first_token_s),
            _ms(meter.total_s),
        )
        settlement = Settlement(
            admission=self._admission,
            outcome=outcome,
            http_status=http_status,
            num_prompt_tokens=meter.num_billed_prompt_tokens,
            num_cached_tokens=meter.num_cached_tokens,
            num_output_tokens=meter.num_output_tokens,
            num_reasoning_tokens=meter.num_reasoning_tokens,
            queue_ms=_ms(meter.queue_s),
            prefill_ms=_ms(meter.prefill_s),
            first_token_ms=_ms(meter.first_token_s),
            total_ms=_ms(meter.total_s),
            error_code=error_code,
            finish_reason=meter.finish_reason,
            inter_token_ms=_ms(meter.inter_token_s),
            num_response_bytes=self._num_response_bytes,
            energy_mj=_mj(meter.energy_j),
            weighted_tokens=self.reservation.weighted_tokens(meter),
            bound_limits=self.reservation.bound_limits,
        )
        self._runtime.ledger.settle(settlement)
        self._runtime.traffic.settled(settlement, self._runtime.directory.entries)
        if self._recording is not None and self._admission.project_id is not None:
            taken = self._recording.taken(self._admission, self._admission.project_id)
            self._runtime.captures.put(taken)


def _mj(energy_j: float | None) -> int | None:
    return None if energy_j is None else round(energy_j * 1000)


def _ms(duration_s: float | None) -> float | None:
    return None if duration_s is None else round(duration_s * 1000, 3)
