"""One request's use of limits. The prompt and the first tokens of the answers are reserved before
the request runs. The reservation grows while the answers are generated, and is settled at the end.
A request that no limit binds reserves nothing."""

from collections.abc import Iterable

from msgspec import structs

from vinery_accounts.keys.table import Caller
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
from vinery_accounts.usage.entries import EQUAL_WEIGHTS, BoundLimit
from vinery_serving.core.errors import LimitReached, Unavailable
from vinery_serving.core.events import NO_TOKENS, QUOTA, TokenCounts
from vinery_serving.gateway.engines.meter import Meter
from vinery_serving.gateway.preparing.prepared import PreparedRequest
from vinery_serving.gateway.running.grants import NUM_AHEAD, NUM_EACH, TokenSource


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
        self._weights = EQUAL_WEIGHTS
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

    async def reserve(self, prepared: PreparedRequest) -> None:
        """Reserve the prompt and the first tokens, of all limits or of none. Raises
        `LimitReached`, and `Unavailable` if the limits cannot be checked."""
        await self._reserve(prepared.engine.entry.name, prepared.meter.tokens, prepared)

    async def reserve_input(self, model: str, num_tokens: int) -> None:
        """Reserve the tokens of a request that generates none. Raises as `reserve` does."""
        await self._reserve(model, TokenCounts(num_tokens))

    async def _reserve(
        self, model: str, tokens: TokenCounts, prepared: PreparedRequest | None = None
    ) -> None:
        self._weights = self._limits.book.weights_of(model)
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
            weights=self._weights,
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
        for denial in answer.shadow_denials:
            if prepared is not None and not is_search and _lasts(denial):
                self._shadows[denial.rule.id] = (denial, 0)
            else:
                self._note([denial])
        self.num_granted = request.num_output_tokens
        self._is_whole = self.num_granted == num_wanted and not num_later
        if request.num_output_tokens < wanted:
            # With all of this the request is like any other.
            await self.extend(wanted - request.num_output_tokens)

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

    def weighted_tokens(self, meter: Meter) -> float:
        return _usage(meter).weighted_tokens(self._weights)

    def cost(self, meter: Meter) -> float:
        return _usage(meter).cost(self._weights)

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
