"""Stores, reads and releases the requests that are in quarantine."""

import logging
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from django.db import transaction
from django.utils import timezone

from vinery_accounts.access import audit
from vinery_accounts.base import change_signal
from vinery_accounts.base.errors import DATABASE_UNAVAILABLE
from vinery_accounts.models import ApiKey, QuarantinedRequest

# Each of these requests has ended two engines, so more are unlikely. Requests beyond are accepted.
_MAX_DIGESTS: Final = 10_000


def store_fatal(row: QuarantinedRequest, keep_s: int) -> None:
    """Put a request into quarantine for `keep_s` from now on, and add names to its ids. Web
    processes may find the same request: the first row stays, and expires later. Raises
    `django.db.Error`."""
    now = timezone.now()
    row.model = row.model[:255]
    row.expires_at = now + timedelta(seconds=keep_s)
    keys = ApiKey.objects.select_related("owner", "project__organization")
    if (key := keys.filter(pk=row.key_id or 0).first()) is not None:
        row.key_name, row.user_id, row.username = key.name, key.owner_id, key.owner.username
        row.project_id, row.project_name = key.project_id, key.project.name
        row.organization_id = key.project.organization_id
        row.organization_name = key.project.organization.name
    with transaction.atomic():
        change_signal.send_after_commit()
        QuarantinedRequest.stored.filter(digest=row.digest, expires_at__lte=now).delete()
        QuarantinedRequest.stored.bulk_create(
            [row], update_conflicts=True, unique_fields=["digest"], update_fields=["expires_at"]
        )


def digests_in_force() -> frozenset[str]:
    return frozenset(QuarantinedRequest.objects.values_list("digest", flat=True)[:_MAX_DIGESTS])


def release(row: QuarantinedRequest) -> QuarantinedRequest:
    """Accept the request again, and return the row as it was. Web processes follow within a
    second. Raises `django.db.Error`."""
    row_id, before = row.pk, audit.snapshot(row)
    with audit.writing():
        num_deleted, _ = row.delete()
        row.pk = row_id  # the deletion has removed the id
        if num_deleted:
            audit.record("release", row, before=before)
    return row


# -- Queue of a web process


logger = logging.getLogger(__name__)


class QuarantineQueue:
    """A bounded queue. One thread may call `put` while another calls `sync`."""

    def __init__(
        self,
        keep_s: int,
        *,
        store: Callable[[QuarantinedRequest, int], None] = store_fatal,
        read: Callable[[], frozenset[str]] = digests_in_force,
        max_waiting: int = 1000,
    ) -> None:
        """`keep_s` is how long a request stays in quarantine; 0: nothing is in quarantine."""
        self._keep_s = keep_s
        self._store = store
        self._read = read
        self._max_waiting = max_waiting
        self._waiting: deque[QuarantinedRequest] = deque()
        # Requests in quarantine when the database was read last.
        self.num_in_force = 0

    @property
    def waiting(self) -> frozenset[str]:
        return frozenset(each.digest for each in self._waiting.copy())

    def put(self, found: QuarantinedRequest) -> None:
        if len(self._waiting) < self._max_waiting:
            self._waiting.append(found)
        else:
            logger.error("quarantine not stored digest=%s: too many wait", found.digest)

    def sync(self) -> frozenset[str]:
        """Store what waits, and return the digests in force. Raises `OperationalError` or
        `InterfaceError` while the database is unavailable; requests that are not stored wait for
        the next call. A request with another error is dropped."""
        if not self._keep_s:
            return frozenset()
        while self._waiting:
            found = self._waiting[0]
            try:
                self._store(found, self._keep_s)
            except DATABASE_UNAVAILABLE:
                raise
            except Exception:
                logger.exception("quarantine not stored digest=%s", found.digest)
            self._waiting.popleft()
        in_force = self._read()
        self.num_in_force = len(in_force)
        return in_force
