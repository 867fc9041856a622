"""Background responses: a row is the truth, and a process only leases it.

The result, its usage record and the end of the run are one transaction. A process that lost its
lease changes nothing, because each change names the number of the lease. Leases go by the clock of
the database: those of hosts differ.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import msgspec
from django.db import transaction
from django.db.models import Count, Q
from django.db.models.functions import Now

from vinery_accounts.alerts.deliveries import response_ended
from vinery_accounts.models import BackgroundRun, ResponseEvents, StoredResponse
from vinery_accounts.stored import conversations, responses
from vinery_accounts.stored.responses import EVENTS_KEPT, End, NewResponse
from vinery_accounts.stored.rows import opened, row_of, sealed
from vinery_accounts.usage.entries import Settlement
from vinery_accounts.usage.store import store_settlements

_LEASE: Final = timedelta(seconds=15)  # renewed each second
MAX_TRIES: Final = 3
ACTIVE: Final = ("queued", "in_progress")
_NUM_LOOKED_AT: Final = 50


class RunLost(Exception):
    """The run was cancelled, or another process has its lease."""


class StoredRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A background request, to be read like a client's. Its response has the rest."""

    tree: str
    body: bytes
    address: str | None = None


def this_process() -> str:
    return f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"


def create(new: NewResponse, request: StoredRequest) -> None:
    """Store a response that is queued, with its input. Raises `NotStored`."""
    with transaction.atomic():
        BackgroundRun.objects.create(
            response=responses.keep(new),
            due_at=Now(),
            sealed_request=sealed(new.public_id, msgspec.msgpack.encode(request)),
        )


def claim(me: str, num: int) -> list[BackgroundRun]:
    """Lease up to `num` runs: such as wait, and such as lost their process. Projects with fewer
    running responses come first."""
    runs = BackgroundRun.objects.select_related("response")
    free = Q(lease_until=None, due_at__lte=Now()) | Q(lease_until__lte=Now())
    if not (found := list(runs.filter(free)[:_NUM_LOOKED_AT])):
        return []
    others = runs.filter(lease_until__gt=Now()).order_by()
    running = dict(others.values_list("response__project_id").annotate(Count("pk")))
    found.sort(key=lambda run: (running.get(run.response.project_id, 0), run.due_at, run.pk))
    claimed: list[BackgroundRun] = []
    for run in found:
        if len(claimed) < num and _is_claimed(run, me):
            claimed.append(run)
    return claimed


def _is_claimed(run: BackgroundRun, me: str) -> bool:
    row = BackgroundRun.objects.filter(pk=run.pk, lease_number=run.lease_number)
    run.lease_number += 1
    run.num_tries += 1
    lease = {"lease_number": run.lease_number, "num_tries": run.num_tries}
    if not row.update(lease_owner=me, lease_until=Now() + _LEASE, **lease):
        return False
    id_ = run.response.public_id
    run.request = msgspec.msgpack.decode(opened(id_, run.sealed_request), type=StoredRequest)
    run.trail = opened(id_, run.sealed_trail) if run.sealed_trail else b""
    return True


def renew(me: str) -> set[int]:
    """Renew the leases of this process. Returns the primary keys of its runs."""
    mine = BackgroundRun.objects.filter(lease_owner=me)
    mine.update(lease_until=Now() + _LEASE)
    return set(mine.values_list("pk", flat=True))


def is_cancelled(run: BackgroundRun) -> bool:
    """Whether nobody will go on with the run, also because the response was deleted."""
    row = StoredResponse.objects.filter(pk=run.response_id)
    return not row.exclude(status="cancelled").exists()


def begin(run: BackgroundRun) -> list[bytes]:
    """Return the events of earlier tries. Raises `RunLost`."""
    with transaction.atomic():
        _lock(run)
        StoredResponse.objects.filter(pk=run.response_id).update(status="in_progress")
    return _events(run.response)


def _events(response: StoredResponse, after: int = -1) -> list[bytes]:
    """The stored events with numbers above `after`."""
    chunks = list(ResponseEvents.objects.filter(response=response).order_by("first"))
    events: list[bytes] = []
    for at, chunk in enumerate(chunks):
        if at + 1 < len(chunks) and chunks[at + 1].first <= after + 1:
            continue
        text = opened(f"{response.public_id} {chunk.first}", chunk.sealed)
        frames = [frame + b"\n\n" for frame in text.split(b"\n\n") if frame]
        events += frames[max(0, after + 1 - chunk.first) :]
    return events


def progress(run: BackgroundRun, events: Sequence[bytes], trail: bytes) -> int:
    """Store all events that are new, and the tokens of which the events are made. Returns how many
    events are stored. Raises `RunLost`."""
    with transaction.atomic():
        row = _lock(run)
        _store_events(row, events)
        row.num_events = len(events)
        row.sealed_trail = sealed(run.response.public_id, trail)
        row.save(update_fields=["num_events", "sealed_trail"])
    return len(events)


def _lock(run: BackgroundRun) -> BackgroundRun:
    found = BackgroundRun.objects.select_for_update().filter(pk=run.pk)
    row: BackgroundRun | None = found.filter(lease_number=run.lease_number).first()
    if row is None:
        raise RunLost
    row.response = run.response
    return row


def _store_events(row: BackgroundRun, events: Sequence[bytes]) -> None:
    if new := b"".join(events[row.num_events :]):
        content = sealed(f"{row.response.public_id} {row.num_events}", new)
        row.response.events.create(first=row.num_events, sealed=content)


def finish(
    run: BackgroundRun, end: End, events: Sequence[bytes], settlement: Settlement | None
) -> None:
    """Store the result, the last events and the usage record, and end the run. Raises `RunLost` and
    `django.db.Error`."""
    response = run.response
    with transaction.atomic():
        row = _lock(run)
        _store_events(row, events)
        row.delete()
        responses.complete(response, end)
        store_settlements([] if settlement is None else [settlement])
        response_ended(response.project_id, response.public_id, end[0])
    conversations.unlock(response.public_id)


def put_back(run: BackgroundRun, delay_s: float, *, counts: bool = False) -> None:
    """Let the run wait. `counts`: this try does."""
    BackgroundRun.objects.filter(pk=run.pk, lease_number=run.lease_number).update(
        lease_owner="",
        lease_until=None,
        num_tries=run.num_tries - (not counts),
        due_at=Now() + timedelta(seconds=delay_s),
    )


def cancel(project_id: int | None, public_id: str) -> bool:
    """End a response that has not ended. Returns whether it is one of the background. Raises
    `NotStored`."""
    with transaction.atomic():
        row = row_of(StoredResponse, project_id, public_id)
        if row.status in ACTIVE:
            BackgroundRun.objects.filter(response=row).delete()
            conversations.unlock(public_id)
            row = row_of(StoredResponse, project_id, public_id, is_locked=True)
        if row.status in ACTIVE:
            row.status, row.events_until = "cancelled", datetime.now(UTC) + EVENTS_KEPT
            row.save(update_fields=["status", "events_until"])
            response_ended(project_id, public_id, "cancelled")
    is_background: bool = row.is_background
    return is_background


def delete(project_id: int | None, public_id: str) -> None:
    """Delete a response, which ends first. Raises `NotStored`."""
    with transaction.atomic():
        cancel(project_id, public_id)
        responses.delete(project_id, public_id)


class FoundEvents(NamedTuple):
    """`is_over`: no further ones will come. `has_gone`: the response has none, because it is not of
    the background, or they are not kept any more."""

    events: list[bytes]
    is_over: bool
    has_gone: bool


def read_events(project_id: int | None, public_id: str, after: int) -> FoundEvents:
    """The events with numbers above `after`. Raises `NotStored`."""
    row = row_of(StoredResponse, project_id, public_id)
    is_over = row.status not in ACTIVE
    has_gone = not row.is_background or (is_over and row.events_until is None)
    return FoundEvents(_events(row, after), is_over, has_gone)


def remove_old_events(now: datetime) -> None:
    """Remove the events of responses that ended a while ago."""
    old = StoredResponse.objects.filter(events_until__lte=now).order_by("events_until")
    while pks := list(old.values_list("pk", flat=True)[:200]):
        with transaction.atomic():
            StoredResponse.objects.filter(pk__in=pks).update(events_until=None)
            ResponseEvents.objects.filter(response__in=pks).delete()
