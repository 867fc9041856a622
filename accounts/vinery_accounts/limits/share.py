"""The share that one of several web processes without a common store has of each limit.

Together the processes never grant more than the amount. One process cannot use what the others
leave. A process that starts takes over an equal part of what the usage records have, while the
others keep what they have left: each start of a single process may grant up to a share more. A
process has a share of at least one, or an amount below the number of processes would be of no use.
"""

from dataclasses import replace
from functools import lru_cache

from msgspec import structs

from vinery_accounts.limits.reservations import UsageBaseline
from vinery_accounts.limits.rules import Rule


@lru_cache(maxsize=65_536)
def share_of(rule: Rule, num_processes: int) -> Rule:
    """Return the rule with an equal share of its amount."""
    return replace(rule, amount=max(min(1, rule.amount), rule.amount // num_processes))


def share_of_baseline(baseline: UsageBaseline, num_processes: int) -> UsageBaseline:
    """Return the share of what is used. A process that has received a baseline before has counted
    its own use since: it keeps what is left of its share, unless less is left in all."""
    rule = share_of(baseline.rule, num_processes)
    num_used = -(-baseline.num_used // num_processes)
    if baseline.is_update:
        num_used = max(0, rule.amount - max(0, baseline.rule.amount - baseline.num_used))
    return structs.replace(baseline, rule=rule, num_used=num_used)
