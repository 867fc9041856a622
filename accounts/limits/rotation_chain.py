"""Keys that were rotated: a limit of a key holds for those that it has replaced, too.

A rotation hands the limits of the old key to the new one. The old one works on for its time of
grace, and counts with the new one; what it has used is the new one's use. A limit that is set on
the old one after that binds it besides.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from accounts.models import ApiKey

# Of a key that is rotated each day, some decades.
_MAX_ROTATIONS: Final = 10_000
_IDS_IN_A_QUERY: Final = 500


def heirs_of(key_ids: Collection[int]) -> dict[int, tuple[int, ...]]:
    """By key that was replaced, which of these took its place, at once or in turn: the next one
    first. A query for each turn. Lets database errors through."""
    older = _older(key_ids)
    heirs: dict[int, tuple[int, ...]] = {}
    for newest in older.keys() - older.values():
        after: tuple[int, ...] = (newest,)
        old = older.get(newest)
        while old is not None:
            heirs[old] = after
            after = (old, *after) if old in key_ids else after
            old = older.get(old)
    return heirs


def _older(key_ids: Collection[int]) -> dict[int, int]:
    """By key, the one that it has replaced; of these and of all before them."""
    found: dict[int, int] = {}
    turn: Collection[int] = key_ids
    for _ in range(_MAX_ROTATIONS):
        older = dict(_pairs(list(turn)))
        if not older:
            break
        found |= older
        turn = set(older.values()) - found.keys()
    return found


def _pairs(new_ids: list[int]) -> list[tuple[int, int]]:
    return [
        pair
        for at in range(0, len(new_ids), _IDS_IN_A_QUERY)
        for pair in ApiKey.objects.filter(replaced_by__in=new_ids[at : at + _IDS_IN_A_QUERY])
        .order_by()
        .values_list("replaced_by_id", "pk")
    ]
