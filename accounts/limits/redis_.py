"""The limiter that several web processes share, on one Redis server.

Each call is one Lua script and one round trip, whatever number of rules it looks at. The
scripts take the time from the server, so the clocks of web processes may differ; where days,
weeks and months begin in a time zone is worked out here and sent along.

The scripts make up their keys from the call, which Redis Cluster does not allow. One server
with replicas is enough: it does tens of thousands of such calls in a second.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib import resources
from typing import Any

import msgspec
from msgspec import structs
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from accounts.limits import calendar
from accounts.limits.leases import (
    LOST,
    Denial,
    Floor,
    Grant,
    Lease,
    Level,
    Reading,
    binding_denial,
    denials_of,
    grant_of,
)
from accounts.limits.limiter import LEASE_TTL_S, STORE_DEADLINE_S, LeaseExists, LimitsAway
from accounts.limits.rules import GRAINS, Claim, Costs, Kind, Rule, Spent

DEFAULT_PREFIX = "vinery:limits:"

# Answers of acquire.lua.
_EXISTS, _DENIED = -1, 0

_NO_WINDOWS = (0, 0, 0, 0)
_FREE: Costs = (0, 0, 0, 0, 0, 0)

# key, kind, amount, is_shadow, cost, the boundaries of its windows, its column in costs, and
# where those are kept who hold some of it and may give it back ("": nowhere).
_Tab = tuple[str, int, int, bool, int, int, int, int, int, int, str]


def connect(url: str, *, deadline_s: float = STORE_DEADLINE_S, max_connections: int = 16) -> Redis:
    """A client made for limits: few connections, short waits, and nothing sent twice."""
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=max_connections,
        timeout=deadline_s,
        socket_timeout=deadline_s,
        socket_connect_timeout=deadline_s,
        # What was sent may have been done: to send a reservation again would count it twice.
        retry=Retry(NoBackoff(), 0),
    )
    return Redis.from_pool(pool)


class RedisLimiter:
    """`Limiter` on one Redis server. Raises `LimitsAway` when that does not answer."""

    def __init__(
        self,
        client: Redis,
        *,
        prefix: str = DEFAULT_PREFIX,
        lease_ttl_s: float = LEASE_TTL_S,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """The client is the caller's to close. It must answer in bytes, as clients do by
        default. `clock` is for tests: it tells Unix time in the server's stead."""
        self._prefix = prefix
        self._pool = client.connection_pool
        self._lease_ttl_ms = round(lease_ttl_s * 1000)
        self._clock = clock
        self._scripts = {name: client.register_script(source(name)) for name in _NAMES}

    async def acquire(self, claim: Claim) -> Lease | Denial:
        """See `Limiter`."""
        costs = claim.costs()
        answer = await self._run(
            "acquire",
            id=claim.lease_id,
            lease=self._lease_key(claim.lease_id),
            tabs=self._tabs(claim.rules, costs),
        )
        if answer[0] == _EXISTS:
            raise LeaseExists(claim.lease_id)
        status, now_ms, used, refusing, held = answer
        reading = Reading(claim.rules, used, now_ms)
        if status == _DENIED:
            denials = denials_of(refusing, costs, reading)
            denial = binding_denial(denial for denial in denials if not denial.rule.is_shadow)
            held_rules = [claim.rules[place] for place in held]
            return structs.replace(denial, is_enforced=denial.rule in held_rules)
        # Shadow rules that refuse are not charged: what is used of them is as it was before.
        return Lease(claim, reading, denials_of(refusing, costs, reading))

    async def extend(self, lease: Lease, num_output_tokens: int) -> Grant:
        """See `Limiter`."""
        rules = lease.claim.rules
        costs = lease.claim.costs_per_output_token()
        answer = await self._run(
            "extend",
            lease=self._lease_key(lease.id),
            asked=num_output_tokens,
            tabs=self._tabs(rules, costs),
        )
        if answer[0] < 0:
            return LOST
        _, now_ms, used, fitting = answer
        numbers = {i: num for i, num in enumerate(fitting) if num is not False}
        return grant_of(num_output_tokens, numbers, costs, Reading(rules, used, now_ms))

    async def settle(self, lease: Lease, spent: Spent) -> None:
        """See `Limiter`."""
        await self._run(
            "settle",
            id=lease.id,
            lease=self._lease_key(lease.id),
            tabs=self._tabs(lease.claim.rules, spent.costs(lease.claim.weights)),
        )

    async def renew(self, leases: Sequence[Lease]) -> None:
        """See `Limiter`."""
        if leases:
            described = [
                (lease.id, self._lease_key(lease.id), self._keys_held(lease)) for lease in leases
            ]
            await self._run("renew", leases=described)

    async def levels(self, rules: Sequence[Rule]) -> tuple[Level, ...]:
        """See `Limiter`."""
        now_ms, used = await self._run("levels", tabs=self._tabs(rules, _FREE))
        return Reading(tuple(rules), used, now_ms).levels

    async def restore(self, floors: Sequence[Floor]) -> None:
        """See `Limiter`."""
        now_ms = self._caller_ms()
        await self._run(
            "restore",
            tabs=[self._tab(floor.rule, floor.num_used * GRAINS, now_ms) for floor in floors],
            since_ms=[floor.since_ms for floor in floors],
        )

    async def _run(self, name: str, **call: object) -> Any:
        now_ms = 0 if self._clock is None else int(self._clock() * 1000)
        message = msgspec.msgpack.encode({"now_ms": now_ms, "ttl_ms": self._lease_ttl_ms, **call})
        try:
            answer = await self._scripts[name](args=[message])
        except (RedisError, OSError) as error:
            # Those that lie idle are broken, too, if the server was away: each of them would
            # make it away once more when it is needed.
            with contextlib.suppress(RedisError, OSError):
                await self._pool.disconnect(inuse_connections=False)
            raise LimitsAway(f"Redis does not keep the limits: {error}") from error
        return msgspec.msgpack.decode(answer) if isinstance(answer, bytes) else answer

    def _tabs(self, rules: Iterable[Rule], costs: Costs) -> list[_Tab]:
        now_ms = self._caller_ms()
        return [self._tab(rule, costs[rule.column], now_ms) for rule in rules]

    def _tab(self, rule: Rule, cost: int, now_ms: int) -> _Tab:
        windows = _NO_WINDOWS
        if rule.kind is Kind.CALENDAR:
            windows = calendar.boundaries_at(rule, now_ms)
        key = self._rule_key(rule)
        return (
            key,
            rule.kind.value,
            rule.amount,
            rule.is_shadow,
            cost,
            *windows,
            rule.column,
            _holders_key(key) if rule.may_come_back else "",
        )

    def _caller_ms(self) -> int:
        """Our own time, good enough to say which days to send."""
        return int((self._clock or time.time)() * 1000)

    def _rule_key(self, rule: Rule) -> str:
        return f"{self._prefix}rule:{rule.key}"

    def _lease_key(self, lease_id: str) -> str:
        return lease_key(self._prefix, lease_id)

    def _keys_held(self, lease: Lease) -> list[str]:
        """Of the sets that a lease may be in."""
        rules = lease.claim.rules
        places = [self._rule_key(rule) for rule in rules if rule.kind is Kind.PLACES]
        quotas = [_holders_key(self._rule_key(rule)) for rule in rules if rule.may_come_back]
        return places + quotas


_NAMES = ("acquire", "extend", "settle", "renew", "levels", "restore")


def lease_key(prefix: str, lease_id: str) -> str:
    """Where a lease is kept."""
    return f"{prefix}lease:{lease_id}"


def _holders_key(rule_key: str) -> str:
    return f"{rule_key}:held"


@cache
def source(name: str) -> str:
    folder = resources.files("accounts.limits") / "lua"
    files = (folder / "tabs.lua", folder / f"{name}.lua")
    return "\n".join(file.read_text(encoding="utf-8") for file in files)
