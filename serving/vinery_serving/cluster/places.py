"""The rows of hosts and placements: the directory of a cluster.

Any host may place replicas, one at a time and on what is stored: a host that has been cut off, or
has stood still, writes nothing that it has decided on older rows.
"""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now

from vinery_accounts.base import change_signal
from vinery_serving.cluster import files
from vinery_serving.cluster.lease import HostLease, host_id
from vinery_serving.cluster.placing import NOWHERE, Assignment, HostOffer, Place, Refusal, Replica
from vinery_serving.core.model_files import weights_bytes_of
from vinery_serving.models import devices
from vinery_serving.models.devices import first_device
from vinery_serving.models.engine_status import EngineState, EngineStatus
from vinery_serving.models.host_rows import Host, Placement
from vinery_serving.models.models import ServedModel, own_folder
from vinery_serving.transport.messages import PROTOCOL_VERSION

log = logging.getLogger(__name__)

_TURN: Final = 0x56494E46  # the lock of who places, for one transaction
_STALLED_MS: Final = 5000


def has_several_hosts() -> bool:
    return bool(connection.vendor == "postgresql")


def register() -> None:
    values = {**_own_values(), "started_at": Now(), "is_gone": False}
    rows = Host.objects.filter(pk=host_id())
    if not rows.update(**values, generation=F("generation") + 1):
        Host.objects.create(pk=host_id(), **values, generation=1)
    if not has_several_hosts():
        Host.objects.exclude(pk=host_id()).delete()


def _own_values() -> dict[str, Any]:
    known = devices.read(Path(settings.VINERY_RUN_DIR))
    names = [] if known is None else map(first_device, known.names)
    fingerprint = ""
    if settings.VINERY_HOST_KEY:
        from vinery_serving.cluster.authority import host_fingerprint  # not for a sole host

        fingerprint = host_fingerprint(settings.VINERY_HOST_KEY)
    return {
        "name": settings.VINERY_HOST_NAME,
        "address": settings.VINERY_HOST_ADDRESS,
        "fingerprint": fingerprint,
        "labels": settings.VINERY_HOST_LABELS,
        "devices": {name: settings.VINERY_MODEL_MEMORY.get(name) for name in names},
        "version": settings.VINERY_VERSION,
        "protocol_version": PROTOCOL_VERSION,
    }


def note_devices() -> None:
    found = _own_values()["devices"]
    if Host.objects.filter(pk=host_id()).exclude(devices=found).update(devices=found):
        change_signal.send()


def own_replicas() -> frozenset[tuple[int, int]] | None:
    """Return the models and replicas that this host should run; None: it is the only host, and runs
    all. Replicas whose files are fetched now are left out. The host is back if it was gone, and
    says which folders it lacks. The relay learns which hosts there are."""
    if not has_several_hosts():
        return None
    own = Host.objects.filter(pk=host_id())
    own.filter(is_gone=True).update(is_gone=False)
    if not own.exists():
        _say_removed()
    if settings.VINERY_HOST_ADDRESS:
        from vinery_serving.cluster.relay import note_hosts

        known_hosts = Host.objects.exclude(fingerprint="").values_list("fingerprint", flat=True)
        with suppress(OSError):  # the next change of a row writes them
            note_hosts(Path(settings.VINERY_RUN_DIR), set(known_hosts))
    if not _others().exists():
        return None
    rows = Placement.objects.filter(host=host_id())
    placed = set(rows.values_list("model_id", "replica"))
    folders = {each.pk: each.stored_folders for each in wanted_models()}
    missing = {
        folder: model_id
        for model_id, needed in folders.items()
        for folder in needed
        if not own_folder(folder).is_dir()
    }
    of_placed = {each for model_id, _ in placed for each in folders.get(model_id, ())}
    lacks = files.fetch(missing, of_placed, {needed[0] for needed in folders.values()})
    own.exclude(lacks=sorted(lacks)).update(lacks=sorted(lacks))
    coming = missing.keys() - lacks
    return frozenset(each for each in placed if coming.isdisjoint(folders.get(each[0], ())))


@cache  # said once: a restart adds the host again
def _say_removed() -> None:
    log.error("this host was removed, so no other one lets it in: restart it to add it again")


def _others() -> QuerySet[Host]:
    return Host.objects.filter(is_gone=False).exclude(pk=host_id())


def by_model() -> Mapping[int, Sequence[Placement]]:
    """Return the replicas that web processes of this host can reach, by model; empty: it is the
    only host. The order is the same on all hosts."""
    found: defaultdict[int, list[Placement]] = defaultdict(list)
    if has_several_hosts() and _others().exists():
        has_relay = ~Q(host__address="") & ~Q(host__fingerprint="")
        is_reached = Q(host=host_id()) | (has_relay if settings.VINERY_HOST_KEY else Q(pk=None))
        rows = Placement.objects.filter(is_reached, host__is_gone=False).select_related("host")
        for each in rows.order_by("replica", "host_id"):
            found[each.model_id].append(each)
    return found


# -- Placing


def place(lease: HostLease, decide: Place) -> None:
    """Give each replica a host. Raises `django.db.Error`."""
    if not has_several_hosts():
        return
    with transaction.atomic():
        if _takes_turn() and _place(lease, decide):
            change_signal.send_after_commit()


def _takes_turn() -> bool:
    """Whether no other process places now. One that stalls loses its turn."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_try_advisory_xact_lock(%s), "
            "set_config('idle_in_transaction_session_timeout', %s, true)",
            [_TURN, str(_STALLED_MS)],
        )
        return bool(cursor.fetchone()[0])


def _place(lease: HostLease, decide: Place) -> bool:
    """Return whether anything has changed."""
    hosts = list(Host.objects.all())
    ended = lease.ended(each.number for each in hosts)
    gone = {each.pk for each in hosts if each.number in ended and each.number != lease.number}
    num_gone = Host.objects.filter(pk__in=gone, is_gone=False).update(is_gone=True)
    if num_gone:
        forget_waits()
    offers = [
        _offer(each, lease)
        for each in hosts
        if each.number == lease.number or not (each.is_gone or each.pk in gone)
    ]
    rows = list(Placement.objects.all())
    models = list(wanted_models())
    placed = {(each.model_id, each.replica) for each in rows}
    wanted = [each for model in models for each in _replicas(model, placed)]
    found = decide(wanted, offers, [_assignment(each) for each in rows])
    known = {(each.model_id, each.replica, str(each.host_id)): each for each in rows}
    removed = [row for key, row in known.items() if key not in found.assignments]
    needed = {(each.model, each.number): each.needed_bytes for each in wanted}
    added = [
        Placement(
            model_id=model,
            replica=number,
            host_id=UUID(host),
            needed_bytes=needed[model, number] or None,
        )
        for model, number, host in sorted(found.assignments - known.keys())
    ]
    Placement.objects.filter(pk__in=[each.pk for each in removed]).delete()
    Placement.objects.bulk_create(added)
    if len(hosts) > 1:
        _tell(models, {each.model_id for each in removed}, found.refused)
    return bool(num_gone or removed or added)


def wanted_models() -> QuerySet[ServedModel]:
    """The models that should be loaded. Of a model without a folder, a job makes it first."""
    return ServedModel.objects.filter(is_loaded=True).exclude(folder="").select_related("engine")


def _offer(host: Host, lease: HostLease) -> HostOffer:
    return HostOffer(
        id=str(host.pk),
        name=host.name,
        budgets=host.devices,
        labels=frozenset((*host.labels, f"host={host.name}")),
        lacks=frozenset(host.lacks),
        has=frozenset(host.digests),
        is_draining=host.is_draining,
        is_away=not lease.is_renewed(host.number),
    )


def _replicas(model: ServedModel, placed: Collection[tuple[int, int]]) -> Iterable[Replica]:
    needed = _status(model).needed_bytes
    numbers = range(model.num_replicas)
    if needed is None and any((model.pk, number) not in placed for number in numbers):
        needed = weights_bytes_of(Path(model.folder))
    for number in numbers:
        yield Replica(
            model=model.pk,
            number=number,
            device=first_device(model.device_of(number)),
            needed_bytes=needed or 0,
            files=frozenset(model.stored_folders),
            labels=frozenset(model.host_labels),
        )


def _assignment(row: Placement) -> Assignment:
    return Assignment(
        row.model_id,
        row.replica,
        str(row.host_id),
        is_ready=row.state == EngineState.READY,
        is_asleep=row.state in (EngineState.ASLEEP, EngineState.FAILED),
        has_failed=row.state == EngineState.FAILED,
    )


def _tell(models: Iterable[ServedModel], removed: set[int], refused: Mapping[int, Refusal]) -> None:
    """Write the states of models that no host reports any more, or for which there is no host."""
    for model in models:
        refusal, status = refused.get(model.pk), _status(model)
        is_obsolete = refusal is None and status.last_error.startswith(NOWHERE)
        if refusal is None and model.pk not in removed and not is_obsolete:
            continue
        values = aggregate(_rows(model.pk))
        if is_obsolete:
            values["last_error"] = ""
        if refusal is not None:
            values["last_error"] = refusal.reason
            if refusal.is_lasting and not values["replicas"]:
                values["state"] = EngineState.FAILED
        if any(getattr(status, name) != value for name, value in values.items()):
            values["settings_digest"] = model.settings_digest
            EngineStatus.objects.update_or_create(model=model, defaults=values)


def _status(model: ServedModel) -> EngineStatus:
    return getattr(model, "engine", None) or EngineStatus(model=model)


# -- What the hosts report


def forget_waits() -> None:
    """Forget which requests wait for models: a process that has ended cannot say that its own wait
    no more. The nodes of requests that still wait say so again."""
    waits = EngineStatus.objects.filter(num_waiting_to_load__gt=0)
    waits.update(num_waiting_to_load=0, waiting_since=None)


Row = dict[str, Any]
_REPORTED: Final = ("device", "state", "pid", "num_restarts", "error")
_BEST_FIRST: Final = (
    EngineState.READY,
    EngineState.LOADING,
    EngineState.RETRYING,
    EngineState.ASLEEP,
    EngineState.FAILED,
    EngineState.UNLOADED,
)


def report(model_id: int, own: Iterable[Row]) -> list[Row]:
    """Write the states of this host's replicas of a model. Returns the replicas on all hosts, none
    if this is the only host that has any."""
    if not has_several_hosts():
        return []
    reported = {each["replica"]: each for each in own}
    of_host = Placement.objects.filter(model_id=model_id, host=host_id())
    for number in of_host.values_list("replica", flat=True):
        found = reported.get(number, {"state": EngineState.UNLOADED, "pid": None})
        values = {name: value for name, value in found.items() if name in _REPORTED}
        of_host.filter(replica=number).update(**values)
    rows = _rows(model_id)
    return rows if any(each["host"] != settings.VINERY_HOST_NAME for each in rows) else []


def _rows(model_id: int) -> list[Row]:
    """The replicas of a model on all hosts, as `EngineStatus.replicas` has them."""
    rows = Placement.objects.filter(model_id=model_id).select_related("host")
    return [
        {**{name: getattr(row, name) for name in ("replica", *_REPORTED)}, "host": row.host.name}
        for row in rows.order_by("replica", "host__name")
    ]


def aggregate(rows: Collection[Row]) -> dict[str, Any]:
    """Return the state of a model, of its replicas on all hosts."""
    unloaded: Row = {"state": EngineState.UNLOADED, "pid": None}
    best = min(rows, key=lambda each: _BEST_FIRST.index(each["state"]), default=unloaded)
    return {
        "state": best["state"],
        "pid": best["pid"],
        "num_restarts": sum(each["num_restarts"] for each in rows),
        "replicas": list(rows),
    }


def models_of_others() -> set[int]:
    if not has_several_hosts():
        return set()
    rows = Placement.objects.exclude(host=host_id()).exclude(state=EngineState.UNLOADED)
    return set(rows.values_list("model_id", flat=True))
