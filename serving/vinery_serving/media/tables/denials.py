"""The media that the rules refused, counted in memory until a thread stores the counts.

The event loop calls `put`, which returns at once; a thread calls `store` about once a second. A
killed process loses counts that are not stored: the list is for people who write rules, and counts
no usage.
"""

import logging
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Final

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from vinery_accounts.base.errors import DATABASE_UNAVAILABLE
from vinery_accounts.models import Organization, Project
from vinery_serving.media.rules import Denial
from vinery_serving.media.tables.models import MAX_FOLDER, MediaDenial

log = logging.getLogger(__name__)

MAX_ROWS: Final = 500
"""How many an organisation has. The oldest are dropped, so that none displaces those of others."""
_MAX_WAITING: Final = 1000

Refused = tuple[int, int, Denial]
"""What distinguishes rows of the list: the ids of the caller's organisation and project, 0 for a
caller without a key, and the refusal without its rule and detail."""


@dataclass(frozen=True, slots=True)
class Count:
    num: int
    first_at: datetime
    last_at: datetime
    latest: Denial


class DenialQueue:
    """A bounded queue of counts. One thread may call `put` while another calls `store`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Refused, Count] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, denial: Denial, organization_id: int | None, project_id: int | None) -> None:
        """Count a denial, or drop it if too many others wait."""
        now = timezone.now()
        refused = organization_id or 0, project_id or 0, replace(denial, detail="", rule_id=None)
        self._add({refused: Count(1, now, now, denial)})

    def store(self) -> None:
        """Store the waiting counts. They wait on without the database; another error drops them."""
        with self._lock:
            batch, self._waiting = self._waiting, {}
        if not batch:
            return
        try:
            store_denials(batch)
        except DATABASE_UNAVAILABLE as error:
            reason = str(error).partition("\n")[0]
            log.warning("%d refused media wait for the database: %s", len(batch), reason)
            self._add(batch)
        except Exception as error:
            log.error("refused media are not stored: %s", type(error).__name__)

    def _add(self, counts: Mapping[Refused, Count]) -> None:
        with self._lock:
            for refused, count in counts.items():
                if (other := self._waiting.get(refused)) is not None:
                    first, last = sorted((other, count), key=lambda each: each.last_at)
                    count = replace(last, num=first.num + last.num, first_at=first.first_at)
                elif len(self._waiting) >= _MAX_WAITING:
                    continue
                self._waiting[refused] = count


def store_denials(batch: Mapping[Refused, Count]) -> None:
    """Add the counts to their rows, and drop rows above the limit. Raises `django.db.Error`."""
    organizations = Organization.objects.in_bulk({each for each, _, _ in batch})
    projects = Project.objects.in_bulk({each for _, each, _ in batch})
    with transaction.atomic():
        for refused, count in batch.items():
            key = _key(*refused)
            row = MediaDenial(**key, first_at=count.first_at, last_at=count.last_at)
            # Another process may have stored the same row, which then stays.
            MediaDenial.objects.bulk_create([row], ignore_conflicts=True)
            organization, project = organizations.get(refused[0]), projects.get(refused[1])
            MediaDenial.objects.filter(**key).update(
                num=F("num") + count.num,
                last_at=count.last_at,
                detail=count.latest.detail[:100],
                rule_id=count.latest.rule_id,
                organization_name=organization.name if organization else "",
                project_name=project.name if project else "",
            )
        for organization_id in sorted({each for each, _, _ in batch}):
            rows = MediaDenial.objects.filter(organization_id=organization_id)
            newest = rows.order_by("-last_at", "-id").values_list("pk", flat=True)
            rows.filter(pk__in=list(newest[MAX_ROWS : 2 * MAX_ROWS + 1000])).delete()


def _key(organization_id: int, project_id: int, denial: Denial) -> dict[str, Any]:
    """Return the columns that distinguish rows, without parts of a client's text that no database
    stores: NUL, and halves of characters."""
    folder = denial.folder.replace("\0", "").encode("utf-8", "replace").decode()
    key = asdict(denial) | {
        "organization_id": organization_id,
        "project_id": project_id,
        "reason": denial.reason.value,
        "host": denial.host[:255],
        "folder": folder[:MAX_FOLDER],
    }
    del key["detail"], key["rule_id"]
    return key
