"""The quotas that are nearly used up."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from accounts.alerts.quotas import Quota, read_quotas
from accounts.limits.rules import in_words
from accounts.limits.service import rule_of
from accounts.resources.owners import owners_of
from accounts.services.access import Access

_MAX_ROWS: Final = 5
# At most so many of those that run out; the others are the fullest of the rest.
_MAX_ENDING: Final = 3
_NEVER: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """One quota with its texts."""

    owner: str
    what: str
    quota: Quota

    @property
    def high(self) -> int:
        """The level from which it is nearly used up."""
        return self.quota.limit.amount * 4 // 5


def quota_rows(access: Access, now: datetime) -> list[QuotaRow]:
    """Return the quotas that run out first, then the fullest. Unused quotas are left out."""
    quotas = closest(read_quotas(access.quotas_seen(), now))
    scopes = [rule_of(quota.limit).scope for quota in quotas]
    owners = owners_of(access, scopes)
    return [
        QuotaRow(owners[scope], in_words(quota.limit.metric, quota.limit.window), quota)
        for scope, quota in zip(scopes, quotas, strict=True)
    ]


def closest(quotas: list[Quota]) -> list[Quota]:
    """Return the few quotas that the page shows."""
    used = sorted(
        (quota for quota in quotas if quota.num_used),
        key=lambda quota: (quota.runs_out_at or _NEVER, -quota.percent),
    )
    ending = [quota for quota in used if quota.runs_out_at is not None][:_MAX_ENDING]
    others = sorted(used, key=lambda quota: -quota.percent)
    fullest = [quota for quota in others if quota not in ending]
    return [*ending, *fullest[: _MAX_ROWS - len(ending)]]
