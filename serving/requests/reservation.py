"""What one request may use of its limits.

Its prompt and the first tokens of its answers are reserved before it runs, more is asked for
while it writes, and the rest is given back at its end. Without a limit that binds it, nothing
of this happens.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from accounts.keys.table import Caller
from accounts.limits.headers import lines_of
from accounts.limits.leases import LOST, Denial, Lease
from accounts.limits.limiter import LimitsAway
from accounts.limits.rules import EQUAL_WEIGHTS, NOTHING, Claim, Spent
from accounts.limits.wording import refusal_of
from accounts.usage.entries import BoundLimit
from serving.core.errors import LimitReached
from serving.flow.grants import NUM_AHEAD, NUM_EACH, TokenSource
from serving.flow.meter import Meter
from serving.flow.prepared import PreparedRequest
from serving.runtime.limits import Limits


class Reservation:
    """Of one request. `serving.flow.grants.TokenSource`, once it is reserved."""

    def __init__(self, limits: Limits, caller: Caller, request_id: str) -> None:
        self._limits = limits
        self._caller = caller
        self._request_id = request_id
        self._lease: Lease | None = None
        self._weights = EQUAL_WEIGHTS
        self._bound: dict[int, BoundLimit] = {}
        self._has_all = False  # that its answers may take
        self.num_granted = 0
        self.is_last = False

    @property
    def allowance(self) -> TokenSource | None:
        """For who reads the answers; None where they cannot need more than they have."""
        return None if self._lease is None or self._has_all else self

    @property
    def bound_limits(self) -> tuple[BoundLimit, ...]:
        """The limits that refused it or cut it short, or in shadow would have."""
        return tuple(self._bound.values())

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """How full its limits are."""
        return [] if self._lease is None else lines_of(self._lease.reading)

    async def reserve(self, job: PreparedRequest) -> None:
        """The prompt and the first tokens, of all limits or of none. Raises `LimitReached`,
        or `Unavailable`."""
        model = job.engine.entry.name
        self._weights = self._limits.book.weights_of(model)
        rules = self._limits.book.rules_for(self._caller, model)
        if not rules:
            return
        is_search = _is_search(job)
        num_each = job.request.n if is_search else 1
        num_answers = max(1, len(job.submits))
        # Tokens of all answers, if each takes as long as it may.
        num_wanted = sum([submit.max_new_tokens for submit in job.submits]) * num_each
        # Nothing is known of a search before its end, so that it cannot be stopped in time.
        first = num_wanted if is_search else (NUM_AHEAD + NUM_EACH) * num_answers
        wanted = min(num_wanted, first)
        claim = Claim(
            lease_id=self._request_id,
            rules=rules,
            num_input_tokens=job.meter.num_prompt_tokens,
            num_output_tokens=wanted,
            weights=self._weights,
            owner=str(self._caller.key_id),
        )
        answer = await self._limits.reserve_in_turn(claim)
        if isinstance(answer, Denial):
            least = min(num_answers, num_wanted)
            if not is_search and least < wanted and _is_end(answer):
                # Where few are left, they are for whoever comes.
                claim = structs.replace(claim, num_output_tokens=least)
                answer = await self._limits.reserve(claim)
            if isinstance(answer, Denial):
                raise self._refused(answer, model)
        self._lease = answer
        if answer.shadow_denials:
            self._note(answer.shadow_denials)
        self.num_granted = claim.num_output_tokens
        self._has_all = self.num_granted == num_wanted
        if claim.num_output_tokens < wanted:
            # Whoever gets all of this is as well off as everybody else.
            await self.extend(wanted - claim.num_output_tokens)

    async def extend(self, num_tokens: int) -> None:
        """See `TokenSource`."""
        if self._lease is None or self.is_last:
            return
        try:
            grant = await self._limits.extend(self._lease, num_tokens)
        except LimitsAway:
            grant = LOST
        self._note(grant.shadow_denials)
        self.num_granted += grant.num_output_tokens
        self.is_last = grant.num_output_tokens < num_tokens
        if grant.denial is not None:
            self._note([grant.denial])

    def settle(self, meter: Meter) -> None:
        """Give back what was not used. A request that no engine took counts as none."""
        lease, self._lease = self._lease, None
        if lease is None:
            return
        self._limits.settle(lease, _spent(meter) if meter.is_accepted else NOTHING)

    def weighted_tokens(self, meter: Meter) -> float:
        """What budgets are charged."""
        return _spent(meter).weighted_tokens(self._weights)

    def _refused(self, denial: Denial, model: str) -> LimitReached:
        self._note([denial])
        refusal = refusal_of(denial, model)
        return LimitReached(
            refusal.message, type_=refusal.type, code=refusal.code, headers=refusal.headers
        )

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


def _is_end(denial: Denial) -> bool:
    """Whether more will not come by waiting a moment, as it does into a bucket."""
    return denial.is_quota or denial.is_too_large


def _is_search(job: PreparedRequest) -> bool:
    return any(submit.beams is not None for submit in job.submits)


def _spent(meter: Meter) -> Spent:
    num_input_tokens = meter.num_billed_prompt_tokens
    return Spent(
        num_input_tokens=num_input_tokens,
        num_cached_tokens=min(meter.num_cached_tokens, num_input_tokens),
        num_output_tokens=meter.num_output_tokens,
    )
