"""Background responses: a row is the truth, and a process only leases it.

The result, its usage record and the end of the run are one transaction. A process that lost its
lease changes nothing, because each change names the number of the lease.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec
from django.db import transaction
from django.db.models import Count, Q

from vinery_accounts.models import BackgroundRun, Conversation, ResponseEvents, StoredResponse
from vinery_accounts.stored import conversations, responses
from vinery_accounts.stored.responses import NewResponse
from vinery_accounts.stored.rows import (
    Item,
    NotStored,
    Owner,
    check_keys,
    count_bytes,
    opened,
    sealed,
)
from vinery_accounts.usage.entries import Settlement
from vinery_accounts.usage.store import store_settlements

LEASE_S: Final = 30.0
MAX_TRIES: Final = 3
EVENTS_KEPT: Final = timedelta(hours=1)
ACTIVE: Final = ("queued", "in_progress")
_NUM_LOOKED_AT: Final = 50


class RunLost(Exception):
    """The run was cancelled, or another process has its lease."""


class StoredRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A background request, to be read like a client's."""

    request_id: str
    token: str  # from which all ids of the answer derive
    created_at: int
    tree: str
    body: bytes
    key_id: int | None
    address: str | None = None


@dataclass(frozen=True, slots=True)
class ClaimedRun:
    pk: int
    response_pk: int
    public_id: str
    owner: Owner
    lease_number: int
    num_tries: int
    request: StoredRequest
    trail: bytes


def this_process() -> str:
    return f"{socket.gethostname()}/{os.getpid()}/{_started_at(os.getpid())}"


def _started_at(pid: int) -> str:
    """The start of a process in ticks since the boot; empty: there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _is_dead(lease_owner: str) -> bool:
    """Whether the owner was a process of this host that has ended."""
    host, pid, started_at = lease_owner.rsplit("/", 2) if lease_owner else ("", "0", "")
    return host == socket.gethostname() and _started_at(int(pid)) != started_at


def create(new: NewResponse, request: StoredRequest) -> None:
    """Store a response that is queued, with its input. Raises `NotStored`."""
    with transaction.atomic():
        check_keys([new.owner])
        pk = responses.keep(new, is_background=True)
        content = sealed(new.public_id, msgspec.msgpack.encode(request))
        BackgroundRun.objects.create(
            response_id=pk, due_at=datetime.now(UTC), sealed_request=content
        )


def claim(me: str, num: int) -> list[ClaimedRun]:
    """Lease up to `num` runs: such as wait, and such as lost their process. Projects with fewer
    running responses come first."""
    now = datetime.now(UTC)
    runs = BackgroundRun.objects.select_related("response")
    dead = {
        owner
        for (owner,) in runs.exclude(lease_owner="").values_list("lease_owner").distinct()
        if _is_dead(owner)
    }
    free = Q(lease_until=None, due_at__lte=now) | Q(lease_until__lte=now) | Q(lease_owner__in=dead)
    running = dict(
        BackgroundRun.objects.filter(lease_until__gt=now)
        .exclude(lease_owner__in=dead)
        .values_list("response__project_id")
        .annotate(Count("pk"))
    )
    found = sorted(
        runs.filter(free)[:_NUM_LOOKED_AT],
        key=lambda run: (running.get(run.response.project_id, 0), run.due_at, run.pk),
    )
    claimed: list[ClaimedRun] = []
    for run in found:
        if len(claimed) == num:
            break
        if (each := _claimed(run, me, now)) is not None:
            claimed.append(each)
    return claimed


def _claimed(run: BackgroundRun, me: str, now: datetime) -> ClaimedRun | None:
    number = run.lease_number + 1
    is_mine = BackgroundRun.objects.filter(pk=run.pk, lease_number=run.lease_number).update(
        lease_owner=me,
        lease_number=number,
        lease_until=now + timedelta(seconds=LEASE_S),
        num_tries=run.num_tries + 1,
    )
    if not is_mine:
        return None
    row = run.response
    content = opened(row.public_id, run.sealed_request)
    return ClaimedRun(
        pk=run.pk,
        response_pk=row.pk,
        public_id=row.public_id,
        owner=Owner(row.project_id, row.user_id, row.key_id),
        lease_number=number,
        num_tries=run.num_tries + 1,
        request=msgspec.msgpack.decode(content, type=StoredRequest),
        trail=opened(row.public_id, run.sealed_trail) if run.sealed_trail else b"",
    )


def renew(me: str) -> set[int]:
    """Renew the leases of this process. Returns the primary keys of its runs."""
    mine = BackgroundRun.objects.filter(lease_owner=me)
    mine.update(lease_until=datetime.now(UTC) + timedelta(seconds=LEASE_S))
    return set(mine.values_list("pk", flat=True))


def held(me: str) -> set[int]:
    """The primary keys of the runs of this process."""
    return set(BackgroundRun.objects.filter(lease_owner=me).values_list("pk", flat=True))


def is_cancelled(run: ClaimedRun) -> bool:
    return StoredResponse.objects.filter(pk=run.response_pk, status="cancelled").exists()


def begin(run: ClaimedRun) -> bytes:
    """Return the events of earlier tries. Raises `RunLost`."""
    with transaction.atomic():
        _lock(run)
        StoredResponse.objects.filter(pk=run.response_pk).update(status="in_progress")
    rows = ResponseEvents.objects.filter(response=run.response_pk).order_by("first")
    return b"".join(opened(f"{run.public_id} {each.first}", each.sealed) for each in rows)


def payload(run: ClaimedRun) -> bytes:
    """The response as it was queued. Raises `RunLost`."""
    row = StoredResponse.objects.filter(pk=run.response_pk).first()
    if row is None:
        raise RunLost
    return opened(run.public_id, row.sealed)


def progress(run: ClaimedRun, events: Sequence[bytes], trail: bytes) -> int:
    """Store all events that are new, and the tokens of which the events are made. Returns how many
    events are stored. Raises `RunLost`."""
    with transaction.atomic():
        row = _lock(run)
        _store_events(run, row.num_events, events)
        row.num_events, row.sealed_trail = len(events), sealed(run.public_id, trail)
        row.save(update_fields=["num_events", "sealed_trail"])
    return len(events)


def _lock(run: ClaimedRun) -> BackgroundRun:
    found = BackgroundRun.objects.select_for_update().filter(pk=run.pk)
    row: BackgroundRun | None = found.filter(lease_number=run.lease_number).first()
    if row is None:
        raise RunLost
    return row


def _store_events(run: ClaimedRun, first: int, events: Sequence[bytes]) -> None:
    if new := b"".join(events[first:]):
        content = sealed(f"{run.public_id} {first}", new)
        ResponseEvents.objects.create(response_id=run.response_pk, first=first, sealed=content)
        count_bytes(run.owner.project_id, len(content))


def finish(
    run: ClaimedRun,
    *,
    status: str,
    payload: bytes,
    outputs: Sequence[Item],
    events: Sequence[bytes],
    settlement: Settlement | None,
    on_end: Callable[[int | None, str, str], None],
) -> None:
    """Store the result, the last events and the usage record, and end the run. `on_end` gets the
    project, the id and the status. Raises `RunLost` and `django.db.Error`."""
    with transaction.atomic():
        row = _lock(run)
        _store_events(run, row.num_events, events)
        row.delete()
        responses.complete(run.response_pk, run.owner, status, payload, outputs)
        store_settlements([] if settlement is None else [settlement])
        on_end(run.owner.project_id, run.public_id, status)
    conversations.unlock(run.public_id)


def put_back(run: ClaimedRun, delay_s: float, *, counts: bool = False) -> None:
    """Let the run wait. `counts`: this try does."""
    BackgroundRun.objects.filter(pk=run.pk, lease_number=run.lease_number).update(
        lease_owner="",
        lease_until=None,
        num_tries=run.num_tries - (not counts),
        due_at=datetime.now(UTC) + timedelta(seconds=delay_s),
    )


def cancel(
    project_id: int | None, public_id: str, on_end: Callable[[int | None, str, str], None]
) -> bool:
    """End a response that has not ended. Returns whether it is one of the background. Raises
    `NotStored`."""
    with transaction.atomic():
        rows = StoredResponse.objects.of(project_id).kept().filter(public_id=public_id)
        row = rows.select_for_update().first()
        if row is None:
            raise NotStored("Response", public_id)
        if row.status in ACTIVE:
            BackgroundRun.objects.filter(response=row).delete()
            row.status, row.events_until = "cancelled", datetime.now(UTC) + EVENTS_KEPT
            row.save(update_fields=["status", "events_until"])
            Conversation.objects.filter(locked_by=public_id).update(
                locked_by=None, locked_until=None
            )
            on_end(project_id, public_id, "cancelled")
    is_background: bool = row.is_background
    return is_background


@dataclass(frozen=True, slots=True)
class FoundEvents:
    """`events`: the frames from `first` on. `is_over`: no further ones will come. `has_gone`: the
    response has no events, or they are not kept any more."""

    chunks: list[tuple[int, bytes]]
    is_over: bool
    has_gone: bool


def read_events(project_id: int | None, public_id: str, after: int) -> FoundEvents:
    """The chunks of events with a number above `after`. Raises `NotStored`."""
    rows = StoredResponse.objects.of(project_id).kept().filter(public_id=public_id)
    row = rows.first()
    if row is None:
        raise NotStored("Response", public_id)
    found = list(ResponseEvents.objects.filter(response=row).order_by("first"))
    has_gone = not row.is_background or (row.events_until is not None and not found)
    # The chunk with the first wanted number begins at or before it.
    begins = [at for at, each in enumerate(found) if each.first <= after + 1]
    wanted = found[begins[-1] :] if begins else found
    chunks = [(each.first, opened(f"{public_id} {each.first}", each.sealed)) for each in wanted]
    return FoundEvents(chunks, row.status not in ACTIVE, has_gone)


def remove_old_events(now: datetime) -> None:
    """Remove the events of responses that ended a while ago."""
    old = StoredResponse.objects.filter(events_until__lte=now).order_by("events_until")
    while pks := list(old.values_list("pk", flat=True)[:200]):
        with transaction.atomic():
            responses.remove_events(pks)
            StoredResponse.objects.filter(pk__in=pks).update(events_until=None)
