"""The limiter's interface: reserve, extend, settle.

A request acquires a lease on all its rules at once, or a denial that has changed nothing.
While it runs, the lease is extended a few tokens ahead of need and renewed by a heartbeat;
at the end it is settled with what was really used. Whatever the interleaving, what is
reserved and used of a rule never exceeds its amount.

Two implementations behave alike: `memory.MemoryLimiter` and `redis_.RedisLimiter`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from accounts.base.errors import AccountsError
from accounts.limits.leases import Denial, Floor, Grant, Lease, Level
from accounts.limits.rules import Claim, Rule, Spent

# A lease that is not renewed for so long belongs to a process that is dead. Its place becomes
# free, and what it has reserved counts as used, until the process is heard again after all, or
# its books are found (`reclaim`). What a process counts for itself is its own: a lease is dead
# there only if it renews others and leaves out this one, whatever its clock says.
LEASE_TTL_S = 35.0
# How often to renew: two heartbeats may be lost, also where each comes a second late.
RENEW_INTERVAL_S = 10.0
# How long to wait for a store outside of this process. It answers in a millisecond, but to a
# process that hundreds of requests reach at once it seems to take over a second, and a store
# that is taken to be away is one whose limits are not kept. One that has died is noticed at
# once: its connections are closed.
STORE_DEADLINE_S = 5.0


class LeaseExists(ValueError):
    """A lease with this id is open already: ids must be unique."""


class LimitsAway(AccountsError):
    """The store of the limits does not answer, and requests are to be refused without it."""


class Limiter(Protocol):
    """Counts reservations. For one event loop; none of its methods blocks it.

    A limit may be set anew while a request runs. A lease that is extended or settled may then
    have, in the same places of its claim, the same rules (`Rule.key`) with other amounts, or in
    shadow: from then on those hold.

    Implementations with a store outside of this process raise `LimitsAway`.
    """

    async def acquire(self, claim: Claim) -> Lease | Denial:
        """Reserve what a claim asks for, of all its rules or of none. Raises `LeaseExists`."""
        ...

    async def extend(self, lease: Lease, num_output_tokens: int) -> Grant:
        """Reserve more tokens of the answer: all of them or what is left."""
        ...

    async def settle(self, lease: Lease, spent: Spent) -> None:
        """Replace the reservation by what was used, and free the place.

        What was reserved in a window that is over stays there. Only the first settlement
        counts. A store outside of this process takes one of a lease that has expired, too, for
        a day: nobody could renew it while the store was away.
        """
        ...

    async def renew(self, leases: Sequence[Lease]) -> None:
        """Keep leases for another `LEASE_TTL_S`: all that this process has. Those that are
        settled may be among them."""
        ...

    async def levels(self, rules: Sequence[Rule]) -> tuple[Level, ...]:
        """How much of each rule is used, reservations included, in the order given."""
        ...

    async def restore(self, floors: Sequence[Floor]) -> None:
        """Raise what is used of quotas to what the books say: after a start, or when the
        store has lost its memory. Of buckets the books only know about how much it is: one of
        which something is used here is left alone. Places are not in the books."""
        ...
