"""The limiter that several web processes share, on one Redis server.

Each call is one Lua script and one round trip for any number of rules. The scripts read the time
from the server, so the clocks of web processes may differ; the call has the boundaries of days,
weeks and months in the rules' time zones.

The scripts compute their keys from the call, which Redis Cluster does not allow. One server with
replicas is enough: a server runs tens of thousands of such calls in a second.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib import resources
from typing import Any, Final

import msgspec
from redis import Redis as Blocking
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from vinery_accounts.limits import windows
from vinery_accounts.limits.recovery import costs_by_id
from vinery_accounts.limits.reservations import (
    LEASE_TTL_S,
    LOST,
    NO_COSTS,
    STORE_DEADLINE_S,
    ActualUsage,
    Costs,
    Denial,
    Grant,
    Lease,
    LeaseExists,
    Level,
    LimitsUnavailable,
    Reading,
    ReservationRequest,
    UsageBaseline,
    binding_denial,
    denials_of,
    grant_of,
)
from vinery_accounts.limits.rules import Kind, Rule

logger = logging.getLogger(__name__)

DEFAULT_PREFIX: Final = "vinery:limits:"
_IDS_IN_A_CALL: Final = 500

# Results of `acquire` in limits.lua.
_EXISTS, _DENIED = -1, 0

_NO_BOUNDARIES: Final = (0, 0, 0, 0)

# A rule in a call: key, kind, amount, is_shadow, cost, boundaries of windows, column in costs, the
# key of the set of leases that may return some of the quota ("": none), ms in a tick, units of one.
_Counter = tuple[str, int, int, bool, int, int, int, int, int, int, str, int, int]


def connect(url: str, *, deadline_s: float = STORE_DEADLINE_S) -> Redis:
    """Return a client for limits, with few connections, a short wait for a connection, and no
    command sent twice. Callers set the deadline of an answer."""
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=16,
        timeout=deadline_s,
        socket_connect_timeout=deadline_s,
        # With a timeout, the client would use `asyncio.wait_for`, which loses cancellations (Python
        # 3.11): a request would run to its end after its client has left.
        socket_timeout=None,
        # The server may have run a command that has no answer. A second reservation counts twice.
        retry=Retry(NoBackoff(), 0),
    )
    return Redis.from_pool(pool)


class RedisLimiter:
    """`Limiter` on one Redis server. Raises `LimitsUnavailable` when the server does not answer."""

    def __init__(
        self,
        client: Redis,
        *,
        prefix: str = DEFAULT_PREFIX,
        lease_ttl_s: float = LEASE_TTL_S,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """The caller closes the client, which must answer in bytes, as clients do by default.
        `clock` replaces the server's clock in tests, and returns Unix time in seconds."""
        self._prefix = prefix
        self._pool = client.connection_pool
        self._lease_ttl_ms = round(lease_ttl_s * 1000)
        self._clock = clock
        self._script = client.register_script(source())

    async def acquire(self, request: ReservationRequest) -> Lease | Denial:
        costs = request.costs()
        answer = await self._run(
            "acquire",
            id=request.lease_id,
            lease=lease_key(self._prefix, request.lease_id),
            counters=self._counters(request.rules, costs),
        )
        if answer[0] == _EXISTS:
            raise LeaseExists(request.lease_id)
        status, now_ms, used, refusing, held = answer
        reading = Reading(request.rules, used, now_ms)
        if status == _DENIED:
            return binding_denial(denials_of(refusing, costs, reading, held))
        # A shadow rule that would have refused is not charged: its use has not changed.
        return Lease(request, reading, denials_of(refusing, costs, reading))

    async def extend(self, lease: Lease, num_output_tokens: int) -> Grant:
        rules = lease.request.rules
        costs = lease.request.costs_per_output_token()
        answer = await self._run(
            "extend",
            lease=lease_key(self._prefix, lease.id),
            asked=num_output_tokens,
            counters=self._counters(rules, costs),
        )
        if answer[0] < 0:
            return LOST
        _, now_ms, used, fitting = answer
        numbers = {i: num for i, num in enumerate(fitting) if num is not False}
        return grant_of(num_output_tokens, numbers, costs, Reading(rules, used, now_ms))

    async def settle(self, lease: Lease, usage: ActualUsage) -> None:
        await self._run(
            "settle",
            id=lease.id,
            lease=lease_key(self._prefix, lease.id),
            counters=self._counters(lease.request.rules, usage.costs(lease.request.weights)),
        )

    async def release(self, lease_ids: Sequence[str]) -> None:
        leases = [(lease_key(self._prefix, each), each, NO_COSTS) for each in lease_ids]
        await self._run("reclaim", leases=leases)

    async def renew(self, leases: Sequence[Lease]) -> None:
        if leases:
            described = [
                (
                    lease.id,
                    lease_key(self._prefix, lease.id),
                    self._set_keys(lease),
                    lease.request.num_answers,
                )
                for lease in leases
            ]
            await self._run("renew", leases=described)

    async def levels(self, rules: Sequence[Rule]) -> tuple[Level, ...]:
        now_ms, used = await self._run("levels", counters=self._counters(rules, NO_COSTS))
        return Reading(tuple(rules), used, now_ms).levels

    async def restore(self, baselines: Sequence[UsageBaseline]) -> None:
        now_ms = self._caller_ms()
        await self._run(
            "restore",
            counters=[
                self._counter(each.rule, each.num_used * each.rule.scale, now_ms)
                for each in baselines
            ],
            since_ms=[each.since_ms for each in baselines],
        )

    async def _run(self, operation: str, **call: object) -> Any:
        now_ms = 0 if self._clock is None else int(self._clock() * 1000)
        call |= {"operation": operation, "now_ms": now_ms, "ttl_ms": self._lease_ttl_ms}
        try:
            answer = await self._script(args=[msgspec.msgpack.encode(call)])
        except (RedisError, OSError) as error:
            # When the server has gone, each idle connection would fail a later call once more.
            with contextlib.suppress(RedisError, OSError):
                await self._pool.disconnect(inuse_connections=False)
            raise LimitsUnavailable(f"Redis does not answer: {error}") from error
        return msgspec.msgpack.decode(answer) if isinstance(answer, bytes) else answer

    def _counters(self, rules: Iterable[Rule], costs: Costs) -> list[_Counter]:
        now_ms = self._caller_ms()
        return [self._counter(rule, costs[rule.column], now_ms) for rule in rules]

    def _counter(self, rule: Rule, cost: int, now_ms: int) -> _Counter:
        boundaries = _NO_BOUNDARIES
        if rule.kind is Kind.CALENDAR:
            boundaries = windows.boundaries_at(rule, now_ms)
        key = self._rule_key(rule)
        return (
            key,
            rule.kind.value,
            rule.amount,
            rule.is_shadow,
            cost,
            *boundaries,
            rule.column,
            _holders_key(key) if rule.may_be_returned else "",
            rule.tick_ms,
            rule.scale,
        )

    def _caller_ms(self) -> int:
        """Return our own time, which is good enough to choose the boundaries of windows."""
        return int((self._clock or time.time)() * 1000)

    def _rule_key(self, rule: Rule) -> str:
        return f"{self._prefix}rule:{rule.key}"

    def _set_keys(self, lease: Lease) -> list[str]:
        rules = lease.request.rules
        slots = [self._rule_key(rule) for rule in rules if rule.kind is Kind.CONCURRENCY]
        quotas = [_holders_key(self._rule_key(rule)) for rule in rules if rule.may_be_returned]
        return slots + quotas


def lease_key(prefix: str, lease_id: str) -> str:
    return f"{prefix}lease:{lease_id}"


def _holders_key(rule_key: str) -> str:
    return f"{rule_key}:held"


@cache
def source() -> str:
    script = resources.files("vinery_accounts.limits") / "limits.lua"
    return script.read_text(encoding="utf-8")


# -- Leases of dead processes


def settle(url: str, request_ids: Sequence[str]) -> None:
    timeout_s = 1.0  # a starting process waits for it
    try:
        with contextlib.closing(
            Blocking.from_url(url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s)
        ) as client:
            settle_on(client, request_ids)
    except (RedisError, OSError) as error:
        logger.warning("reservations of dead processes count as used: %s", error)


def settle_on(
    client: Blocking, request_ids: Sequence[str], *, prefix: str = DEFAULT_PREFIX
) -> None:
    """Settle the leases on a given server. Raises `RedisError`, OSError and `django.db.Error`."""
    script = client.register_script(source())
    for at in range(0, len(request_ids), _IDS_IN_A_CALL):
        found = costs_by_id(request_ids[at : at + _IDS_IN_A_CALL])
        leases = [(lease_key(prefix, each), each, costs) for each, costs in found]
        call = {"operation": "reclaim", "now_ms": 0, "ttl_ms": 0, "leases": leases}
        script(args=[msgspec.msgpack.encode(call)])
