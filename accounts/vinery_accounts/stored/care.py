"""What becomes of stored objects without their clients: terms end, owners go, keys are replaced."""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime
from typing import Any, Final

from django.db import transaction
from django.db.models import Model, Q

from vinery_accounts import models
from vinery_accounts.models import Project, ResponseEvents, StoredBytes, StoredItem
from vinery_accounts.models.stored import OBJECTS, follow_days
from vinery_accounts.stored import chats, compactions, conversations, responses, runs
from vinery_accounts.stored.rows import resealed

_SWEEP_S: Final = 30.0
_IN_A_GROUP: Final = 200
_SEALED: Final[tuple[Any, ...]] = (*OBJECTS, StoredItem, models.BackgroundRun, ResponseEvents)


def sweep(now: datetime) -> int:
    """Remove what has expired and what no owner has any more, in groups and for a while: the next
    sweep goes on. Returns how many rows of responses, conversations and chats."""
    _follow_terms(now)
    runs.remove_old_events(now)
    has_expired, until_s = Q(expires_at__lte=now), time.monotonic() + _SWEEP_S
    num_removed: int = sum(
        each.remove_all(has_expired, until_s) for each in (responses, conversations, chats)
    )
    kept = Q(project_id=0) | Q(project_id__in=Project.objects.order_by().values("pk"))
    StoredBytes.objects.filter(num_bytes__lte=0).exclude(kept).delete()
    return num_removed


def _follow_terms(now: datetime) -> None:
    """Apply terms of projects to what the process of a change has left, and to answers that were
    running then. A project that is gone has no days."""
    terms = dict(Project.objects.order_by("pk").values_list("pk", "response_days"))
    terms[0] = next(iter(terms.values()), None)  # clients without keys: that of the first project
    for row in StoredBytes.objects.all():
        days = terms.get(row.project_id) or 0
        if row.is_followed and row.days is not None and row.days <= days:
            continue
        # From now on, what is stored for longer empties the column, so this is done once more.
        StoredBytes.objects.filter(pk=row.pk).update(days=days, is_followed=False)
        follow_days(row.project_id or None, days, now)
        StoredBytes.objects.filter(pk=row.pk, days=days).update(is_followed=True)


def reencrypt() -> tuple[int, int]:
    """Seal all texts with the newest key, in groups. A second run goes on where the first one
    ended, because a run writes only what an older key has sealed. Returns how many rows the newest
    key opens then, and how many no configured key can open."""
    is_done: Counter[bool] = Counter()
    for table in _SEALED:
        rows, last = table.objects.order_by("pk"), 0
        while pks := list(rows.filter(pk__gt=last).values_list("pk", flat=True)[:_IN_A_GROUP]):
            with transaction.atomic():
                locked = rows.select_for_update(no_key=True).filter(pk__in=pks)
                is_done.update(map(_is_reencrypted, locked))
            last = pks[-1]
    return is_done[True], is_done[False]


def _is_reencrypted(row: Model) -> bool:
    bound_to, columns = _sealed_columns(row)
    known = {name: bytes(content) for name in columns if (content := getattr(row, name))}
    try:
        if isinstance(row, StoredItem) and row.kind == compactions.KIND:
            of_item = row.project_id, row.public_id
            new = {"sealed": compactions.resealed_item(*of_item, known["sealed"])}
        else:
            new = {name: resealed(bound_to, content) for name, content in known.items()}
    except ValueError:
        return False
    if new != known:
        type(row)._default_manager.filter(pk=row.pk).update(**new)
        if isinstance(row, models.StoredChat):
            chats.renew_pairs(row)
    return True


def _sealed_columns(row: Any) -> tuple[str, tuple[str, ...]]:
    """To what its texts are bound, and their columns."""
    match row:
        case models.BackgroundRun():
            return row.response.public_id, ("sealed_request", "sealed_trail")
        case ResponseEvents():
            return f"{row.response.public_id} {row.first}", ("sealed",)
    return row.public_id, ("sealed",)
