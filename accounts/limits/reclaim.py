"""What processes that died had reserved goes back where several share their limits in a Redis.

A lease that nobody renews frees its places by itself, and the rest of it counts as used, until
the books know what was really used: then the finder of the books settles it. Where limits are
counted in the process that died, nothing of it is left, and the books tell the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Final

import msgspec
from django.conf import settings
from redis import Redis
from redis.exceptions import RedisError

from accounts.limits.limiter import STORE_DEADLINE_S
from accounts.limits.redis_ import DEFAULT_PREFIX, lease_key, source
from accounts.limits.rules import GRAINS, NOTHING, Costs, Spent
from accounts.models import UsageRecord

log = logging.getLogger(__name__)

_IDS_IN_A_CALL: Final = 500
_Dead = tuple[str, str, Costs]


def reclaim(request_ids: Sequence[str]) -> None:
    """Settle the leases of these requests, whose rows are stored, with what the rows say. Those
    that were settled are left alone. Without a Redis nothing is to be done, and while it is
    away what was reserved stays used, until its window is over."""
    if not settings.VINERY_REDIS_URL or not request_ids:
        return
    try:
        with closing(_connect(settings.VINERY_REDIS_URL)) as client:
            settle_dead(client, request_ids)
    except (RedisError, OSError) as error:
        log.warning("what dead processes had reserved of limits stays used: %s", error)


def settle_dead(client: Redis, request_ids: Sequence[str], *, prefix: str = DEFAULT_PREFIX) -> None:
    """The same on a given server. Raises its errors, and those of the database."""
    script = client.register_script(source("reclaim"))
    for at in range(0, len(request_ids), _IDS_IN_A_CALL):
        leases = list(_dead(request_ids[at : at + _IDS_IN_A_CALL], prefix))
        call = {"now_ms": 0, "ttl_ms": 0, "leases": leases}
        script(args=[msgspec.msgpack.encode(call)])


def _dead(request_ids: Sequence[str], prefix: str) -> Iterable[_Dead]:
    columns = ("request_id", "num_prompt_tokens", "num_output_tokens", "weighted_tokens")
    rows = UsageRecord.objects.filter(request_id__in=request_ids).values_list(*columns)
    for request_id, num_prompt, num_output, weighted in rows:
        # What no engine took has no tokens, and was not counted.
        spent = Spent(num_prompt, num_output) if num_prompt else NOTHING
        yield lease_key(prefix, request_id), request_id, spent.costs_at(round(weighted * GRAINS))


def _connect(url: str) -> Redis:
    return Redis.from_url(
        url, socket_timeout=STORE_DEADLINE_S, socket_connect_timeout=STORE_DEADLINE_S
    )
