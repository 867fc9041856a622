"""The usage record of one request, admitted when the request is parsed and settled exactly once,
and its use of limits.

The prompt and the first tokens of the answers are reserved before the request runs. The reservation
grows while the answers are generated, and is settled at the end. A request that no limit binds
reserves nothing.
"""

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
from vinery_accounts.limits.reservations import (
    NO_USAGE,
    ActualUsage,
    Costs,
    Denial,
    Lease,
    LimitsUnavailable,
    ReservationRequest,
    num_used,
)
from vinery_accounts.limits.responses import headers_of, refusal_of
from vinery_accounts.limits.service import LimitService
from vinery_accounts.usage.entries import (
    EQUAL_WEIGHTS,
    Admission,
    BoundLimit,
    Media,
    Outcome,
    Settlement,
)
from vinery_accounts.usage.ledger import NoRoomForUsage
from vinery_serving.core.errors import LimitReached, ServingError, Unavailable, UsageNotRecorded
from vinery_serving.core.events import NO_TOKENS, QUOTA, TokenCounts
from vinery_serving.core.request import Endpoint
from vinery_serving.gateway.engines.meter import Meter
from vinery_serving.gateway.preparing.prepared import PreparedRequest
from vinery_serving.gateway.running.grants import NUM_AHEAD, NUM_EACH, TokenSource
from vinery_serving.gateway.state.drain import LiveRequest
from vinery_serving.gateway.state.runtime import Runtime

log = logging.getLogger(__name__)

_OWNERS: Final = {*Caller.__struct_fields__} & {*Admission.__struct_fields__}
_COUNTS: Final = {*Settlement.__struct_fields__} & {each.name for each in fields(TokenCounts)}
_MAX_MODEL_NAME = 255  # as in the column: lines of the journal have a bounded length


class Reservation:
    """The reservation of one request: the `TokenSource` of `running/grants.py` after `reserve`."""

    def __init__(
        self, limits: LimitService, caller: Caller, request_id: str, *, is_held: bool = False
    ) -> None:
        """`is_held`: limits learn of the settlement by `release`."""
        self._limits, self._caller, self._is_held = limits, caller, is_held
        self._settled: tuple[Lease, ActualUsage] | None = None
        self._request_id = request_id
        self.end_user = ""  # as usage records name it
        self._lease: Lease | None = None
        self.weights = EQUAL_WEIGHTS
        self._bound: dict[int, BoundLimit] = {}
        self._cut: Denial | None = None  # of the last grant
        # By the id of the rule: the denial of a shadow limit, for an answer that gets so long, and
        # what the request had of the limit then, in fixed-point units.
        self._shadows: dict[int, tuple[Denial, int]] = {}
        self._is_whole = False  # all that the answers may take is reserved
        self.num_granted = 0
        self.is_last = False

    @property
    def token_source(self) -> TokenSource | None:
        """Where more tokens can be reserved; None if the answers cannot need more."""
        return None if self._lease is None or self._is_whole else self

    @property
    def bound_limits(self) -> tuple[BoundLimit, ...]:
        """The limits that refused the request or, once settled, cut the answer, with shadow limits
        that would have."""
        return tuple(self._bound.values())

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        return [] if self._lease is None else headers_of(self._lease.reading)

    async def reserve(
        self, model: str, tokens: TokenCounts, prepared: PreparedRequest | None = None
    ) -> None:
        """Reserve the prompt and the first tokens, of all limits or of none. `prepared` None: no
        tokens are generated. Raises `LimitReached`, and `Unavailable` if the limits cannot be
        checked."""
        self.weights = self._limits.book.weights_of(model)
        rules = self._limits.book.rules_for(self._caller, model, self.end_user)
        if not rules:
            return
        submits = () if prepared is None else prepared.submits
        num_later = 0 if prepared is None else prepared.num_later_tokens
        is_search = any(submit.beams is not None for submit in submits)
        num_answers = max(1, len(submits))
        # The tokens of all answers, if each takes as many as it may.
        num_wanted = sum(each.max_new_tokens for each in submits)
        if prepared is not None and is_search:
            num_wanted *= prepared.request.n
        # A beam search has no tokens to count before the end, so all are reserved at once.
        first = num_wanted if is_search else (NUM_AHEAD + NUM_EACH) * num_answers
        wanted = min(num_wanted, first)
        num_sequences = [1 if each.beams is None else each.beams.width for each in submits]
        request = ReservationRequest(
            lease_id=self._request_id,
            rules=rules,
            num_prompt_tokens=tokens.num_prompt_tokens + num_later,
            num_image_tokens=tokens.num_media_tokens,
            num_output_tokens=wanted,
            weights=self.weights,
            num_answers=max(1, sum(num_sequences)),
        )
        answer = await _ask_limits(self._limits, request)
        least = wanted if is_search else min(num_answers, num_wanted)
        if isinstance(answer, Denial) and least < wanted and _lasts(answer):
            # The request gets the few tokens that are left.
            request = structs.replace(request, num_output_tokens=least)
            answer = await _ask_limits(self._limits, request)
        if isinstance(answer, Denial):
            self._note([answer])
            raise _limit_reached(answer, model)
        self._lease = answer
        self._take_shadows(answer.shadow_denials, may_cut=prepared is not None and not is_search)
        self.num_granted = request.num_output_tokens
        self._is_whole = self.num_granted == num_wanted and not num_later
        if request.num_output_tokens < wanted:
            # With all of this the request is like any other.
            await self.extend(wanted - request.num_output_tokens)

    def _take_shadows(self, denials: Iterable[Denial], *, may_cut: bool) -> None:
        for denial in denials:
            if may_cut and _lasts(denial):
                self._shadows[denial.rule.id] = (denial, 0)
            else:
                self._note([denial])

    async def extend(self, num_tokens: int) -> None:
        if self._lease is None or self.is_last:
            return
        grant = await self._limits.extend(self._lease, num_tokens)
        costs = _costs(self._lease.request, self.num_granted)
        for denial in grant.shadow_denials:
            self._shadows.setdefault(denial.rule.id, (denial, costs[denial.rule.column]))
        self.num_granted += grant.num_output_tokens
        self.is_last = grant.num_output_tokens < num_tokens
        self._cut = grant.denial

    def settle(self, meter: Meter) -> None:
        """Return the unused tokens. A request that no engine has run costs nothing."""
        lease, self._lease = self._lease, None
        if lease is None:
            return
        self._settled = lease, _usage(meter) if meter.billed_tokens != NO_TOKENS else NO_USAGE
        if not self._is_held:
            self.release(is_recorded=True)
        if self._cut is not None and meter.finish_reason == QUOTA:
            self._note([self._cut])
        costs = _costs(lease.request, max(1, meter.billed_tokens.num_output_tokens))
        for denial, had in self._shadows.values():
            num_needed = num_used(denial.rule, costs[denial.rule.column] - had)
            if num_needed > denial.level.num_remaining:
                self._note([structs.replace(denial, num_needed=num_needed)])

    def release(self, *, is_recorded: bool) -> None:
        """Tell the limits what a settled request has used: nothing without a usage record."""
        settled, self._settled = self._settled, None
        if settled is not None:
            lease, usage = settled
            self._limits.settle(lease, usage if is_recorded else NO_USAGE)

    def _note(self, denials: Iterable[Denial]) -> None:
        for denial in denials:
            rule = denial.rule
            self._bound[rule.id] = BoundLimit(
                limit_id=rule.id,
                scope=rule.scope,
                metric=rule.metric,
                window=rule.window,
                amount=rule.amount,
                level=denial.level.num_used,
                needed=denial.num_needed,
                wait_s=denial.wait_s,
                is_shadow=rule.is_shadow,
            )


def _lasts(denial: Denial) -> bool:
    """Whether a short wait does not help."""
    return denial.is_quota or denial.is_too_large


def _costs(request: ReservationRequest, num_output_tokens: int) -> Costs:
    return structs.replace(request, num_output_tokens=num_output_tokens).costs()


def _usage(meter: Meter) -> ActualUsage:
    tokens, media = meter.billed_tokens, meter.num_earlier_media_tokens
    return ActualUsage(
        num_prompt_tokens=tokens.num_prompt_tokens,
        num_output_tokens=tokens.num_output_tokens,
        num_cached_tokens=min(tokens.num_cached_tokens, tokens.num_prompt_tokens),
        num_image_tokens=meter.num_new_media_tokens if meter.has_begun else media,
    )


async def count_request(
    limits: LimitService, caller: Caller, model: str, request_id: str
) -> list[tuple[bytes, bytes]]:
    """Count a request that no engine runs, and return the `x-ratelimit-*` headers of its answer.
    Raises `LimitReached`, and `Unavailable` if the limits cannot be checked."""
    rules = limits.book.request_rates_for(caller, model)
    if not rules:
        return []
    answer = await _ask_limits(limits, ReservationRequest(lease_id=request_id, rules=rules))
    if isinstance(answer, Denial):
        raise _limit_reached(answer, model)
    limits.settle(answer, ActualUsage())
    return headers_of(answer.reading)


async def _ask_limits(limits: LimitService, request: ReservationRequest) -> Lease | Denial:
    try:
        return await limits.reserve(request)
    except LimitsUnavailable:
        raise Unavailable(
            "The limits of this server cannot be checked just now. Try again."
        ) from None


def _limit_reached(denial: Denial, model: str) -> LimitReached:
    refusal = refusal_of(denial, model)
    return LimitReached(
        refusal.message, type_=refusal.type, code=refusal.code, headers=refusal.headers
    )


# -- The record


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
        meter, tokens, used = self.meter, self.meter.billed_tokens, _usage(self.meter)
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
            weighted_tokens=used.weighted_tokens(self.reservation.weights),
            cost=used.cost(self.reservation.weights),
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
