"""Keys that were rotated: a limit of a key holds for those that it has replaced, too.

A rotation hands the limits of the old key to the new one. The old one works on for its time of
grace, and counts with the new one; what it has used is the new one's use.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from accounts.models import ApiKey

# Of a key that is rotated each day, some decades.
_MAX_ROTATIONS: Final = 10_000
_IDS_IN_A_QUERY: Final = 500


def replaced_by(key_ids: Collection[int]) -> dict[int, int]:
    """The keys that these have replaced, at once or in turn, each with the one of these that is
    in its place now. A query for each turn. Lets database errors through."""
    found: dict[int, int] = {}
    newest = {key_id: key_id for key_id in key_ids}
    for _ in range(_MAX_ROTATIONS):
        older = {
            old: newest[new]
            for old, new in _pairs(list(newest))
            if old not in found and old not in key_ids
        }
        if not older:
            break
        found |= older
        newest = older
    return found


def _pairs(new_ids: list[int]) -> list[tuple[int, int]]:
    return [
        pair
        for at in range(0, len(new_ids), _IDS_IN_A_QUERY)
        for pair in ApiKey.objects.filter(replaced_by__in=new_ids[at : at + _IDS_IN_A_QUERY])
        .order_by()
        .values_list("pk", "replaced_by_id")
    ]
