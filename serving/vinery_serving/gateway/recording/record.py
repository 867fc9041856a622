"""The usage record of one request: admitted when the request is parsed, settled exactly once."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime
from typing import Final

from msgspec import structs

from vinery_accounts.captures.documents import without_files
from vinery_accounts.captures.store import MAX_TEXT_BYTES, CapturedRequest
from vinery_accounts.keys.table import Caller, stored_end_user
from vinery_accounts.usage.entries import Admission, Media, Outcome, Settlement
from vinery_accounts.usage.ledger import NoRoomForUsage
from vinery_serving.core.errors import ServingError, UsageNotRecorded
from vinery_serving.core.events import TokenCounts
from vinery_serving.core.request import Endpoint
from vinery_serving.gateway.engines.meter import Meter
from vinery_serving.gateway.recording.reservation import Reservation
from vinery_serving.gateway.state.drain import LiveRequest
from vinery_serving.gateway.state.runtime import Runtime

log = logging.getLogger(__name__)

_OWNERS: Final = {*Caller.__struct_fields__} & {*Admission.__struct_fields__}
_COUNTS: Final = {*Settlement.__struct_fields__} & {each.name for each in fields(TokenCounts)}
_MAX_MODEL_NAME = 255  # as in the column: lines of the journal have a bounded length


class RequestRecord:
    """Call `admit`, then one of `succeed`, `fail` and `leave`; later calls have no effect."""

    def __init__(
        self,
        runtime: Runtime,
        caller: Caller,
        *,
        request_id: str,
        endpoint: Endpoint,
        dialect: str,
        error_body: Callable[[ServingError], bytes],
        address: str | None = None,
        client_request_id: str = "",
        body: bytes = b"",
        lease_id: str | None = None,
    ) -> None:
        """`error_body` returns the error for the client. With `lease_id` nothing is written: `held`
        keeps the settlement for the transaction of the result, and the reservation its tokens until
        `release`. The id is new for each try, as limits may know that of a killed process."""
        self._runtime, self._caller, self._error_body = runtime, caller, error_body
        self._is_held = lease_id is not None
        self.held: Settlement | None = None
        self._is_read = False  # enough of the body for the admission
        self._is_admitted = self._is_settled = False
        self.reservation = Reservation(
            runtime.limits, caller, lease_id or request_id, is_held=self._is_held
        )
        self.meter = Meter()
        self._num_response_bytes = 0
        self._is_captured = caller.captures and bool(body)
        self._captured_body, self._num_captured_bytes = (
            without_files(body, MAX_TEXT_BYTES) if self._is_captured else (b"", 0)
        )
        self._captured_answer = bytearray()
        self._num_answer_bytes = 0
        self._serving_model = ""
        self.live = LiveRequest(request_id, caller.key_id, self.meter, asyncio.current_task())
        self._admission = Admission(
            request_id=request_id,
            **{name: getattr(caller, name) for name in _OWNERS},
            model="",
            endpoint=endpoint,
            dialect=dialect,
            is_streamed=False,
            started_at=datetime.now(UTC),
            ip=address,
            client_request_id=client_request_id,
            num_request_bytes=len(body),
        )

    def admit(
        self,
        *,
        model: str = "",
        is_streamed: bool = False,
        mm_hashes: Iterable[str] = (),
        end_user: str = "",
        sent: str = "",
    ) -> None:
        """Write the request to the usage journal, so that it is recorded even if this process is
        killed. Raises `UsageNotRecorded`."""
        self._is_read = True
        name = model[:_MAX_MODEL_NAME]
        self._admission = structs.replace(
            self._admission,
            model=name,
            asked_model=name,
            is_streamed=is_streamed,
            mm_hashes=" ".join(mm_hashes),
            end_user=stored_end_user(end_user, self._caller),
            parameters=sent or None,
        )
        self.reservation.end_user = self._admission.end_user
        self._write_admission()
        self._is_admitted = True
        self._runtime.live.add(self.live)

    def name_model(self, name: str) -> None:
        if name != self._admission.model:
            self._admission = structs.replace(self._admission, model=name)
            # Written again, because recovery after a kill reads only the journal.
            self._write_admission()
        self._serving_model = name

    def note_media(self) -> None:
        """Write the counts of pictures to the journal, for recovery. Raises `UsageNotRecorded`."""
        media = self.meter.media
        if media.num_files:
            self._write_admission(
                Media(
                    num_files=media.num_files,
                    num_bytes=media.num_bytes,
                    num_pixels=media.num_pixels,
                    spans=self.meter.media_spans,
                    num_video_tokens=self.meter.tokens.num_video_tokens,
                    fetch_ms=_ms(media.fetch_s or None),
                    decode_ms=_ms(media.decode_s or None),
                )
            )

    def _write_admission(self, media: Media | None = None) -> None:
        self.live.admission = self._admission
        if self._is_held:
            return
        try:
            self._runtime.ledger.admit(structs.replace(self._admission, media=media))
        except NoRoomForUsage:
            raise UsageNotRecorded(
                "The server's disk is full, so it cannot record the usage of this request. Try "
                "again later."
            ) from None

    def add_answer(self, data: bytes) -> None:
        """Count and capture bytes of the answer. Call it before the record is settled."""
        self._num_response_bytes += len(data)
        self._capture(data)

    def succeed(self) -> None:
        self._settle(Outcome.OK, 200)

    def fail(self, error: ServingError) -> None:
        outcome = Outcome.REJECTED if error.status < 500 else Outcome.FAILED
        if self._is_captured and not self._num_answer_bytes:
            self._capture(self._error_body(error))
        self._settle(outcome, error.status, error)

    def forget(self) -> None:
        """Record nothing: the request goes on elsewhere."""
        self._is_settled = True
        self._runtime.live.discard(self.live)
        self.reservation.settle(self.meter)

    def leave(self) -> None:
        self._settle(Outcome.CLIENT_GONE, 499)

    def _settle(
        self, outcome: Outcome, http_status: int, error: ServingError | None = None
    ) -> None:
        if self._is_settled:
            return
        if not self._is_read:
            with suppress(UsageNotRecorded):
                self.admit()
        self._is_settled = True
        self._runtime.live.discard(self.live)
        self.reservation.settle(self.meter)
        settlement = self._settlement(outcome, http_status, error)
        _log(settlement, (self.meter.earlier + self.meter.tokens).num_prompt_tokens)
        if self._is_held:
            self.held = settlement
        else:
            with suppress(UsageNotRecorded):
                if not self._is_admitted:  # a refused request
                    self._write_admission()
                self._runtime.ledger.settle(settlement)
        self._runtime.traffic.settled(settlement, self._runtime.directory.entries)
        if self._is_captured and self._admission.project_id is not None:
            self._runtime.captures.put(self._captured(self._admission.project_id))

    def _capture(self, data: bytes) -> None:
        if self._is_captured:
            self._num_answer_bytes += len(data)
            self._captured_answer += data[: MAX_TEXT_BYTES - len(self._captured_answer)]

    def _captured(self, project_id: int) -> CapturedRequest:
        admission = self._admission
        return CapturedRequest(
            request_id=admission.request_id,
            project_id=project_id,
            created_at=admission.started_at,
            dialect=admission.dialect,
            endpoint=admission.endpoint,
            model=self._serving_model,
            body=self._captured_body,
            answer=bytes(self._captured_answer),
            num_body_bytes=self._num_captured_bytes,
            num_answer_bytes=self._num_answer_bytes,
        )

    def _settlement(
        self, outcome: Outcome, http_status: int, error: ServingError | None
    ) -> Settlement:
        message, param = error.recorded if error else ("", "")
        meter, tokens = self.meter, self.meter.billed_tokens
        return Settlement(
            admission=self._admission,
            outcome=outcome,
            http_status=http_status,
            **{name: getattr(tokens, name) for name in _COUNTS},
            queue_ms=_ms(meter.waited_s),
            prefill_ms=_ms(meter.prefill_s),
            first_token_ms=_ms(meter.first_token_s),
            total_ms=_ms(meter.total_s),
            error_code=(error and error.code) or "",
            error_message=message,
            error_param=param,
            finish_reason=meter.finish_reason,
            inter_token_ms=_ms(meter.inter_token_s),
            num_response_bytes=self._num_response_bytes,
            num_continuations=meter.num_continuations,
            num_media=meter.media.num_files,
            num_media_bytes=meter.media.num_bytes,
            num_media_pixels=meter.media.num_pixels,
            fetch_ms=_ms(meter.media.fetch_s or None),
            decode_ms=_ms(meter.media.decode_s or None),
            encode_ms=_ms(meter.encode_s),
            weighted_tokens=self.reservation.weighted_tokens(meter),
            cost=self.reservation.cost(meter),
            bound_limits=self.reservation.bound_limits,
        )


def _log(settlement: Settlement, num_prompt_tokens: int) -> None:
    admission = settlement.admission
    named = {
        "request_id": admission.request_id,
        "user": admission.username,
        "key_id": admission.key_id,
        "model": admission.model[:128],
        "endpoint": f"{admission.dialect}/{admission.endpoint}",
        "status": settlement.http_status,
        "outcome": settlement.outcome,
        "error_code": settlement.error_code,
        "prompt": num_prompt_tokens,
        "cached": settlement.num_cached_tokens,
        "output": settlement.num_output_tokens,
        **({"media": settlement.num_media} if settlement.num_media else {}),
        "first_token_ms": settlement.first_token_ms,
        "total_ms": settlement.total_ms,
    }
    log.info("request", extra={"fields": named})


def _ms(duration_s: float | None) -> float | None:
    return None if duration_s is None else round(duration_s * 1000, 3)
