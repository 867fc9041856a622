"""Writes the state of engines for administrators. A database that is unavailable ends no engine.

The state of a model with several engines is that of the best of them.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.db import DatabaseError
from django.db.models import F
from django.utils import timezone

from vinery_accounts.base import change_signal
from vinery_accounts.base.connections import giving_back
from vinery_serving.cluster import places
from vinery_serving.models.engine_status import PICTURES_FAILED, EngineState, EngineStatus
from vinery_serving.models.job_rows import record_event
from vinery_serving.models.models import ServedModel
from vinery_serving.node.load_errors import LoadAttempts
from vinery_serving.transport.waiting import Wait

log = logging.getLogger(__name__)


class Subject(NamedTuple):
    model_id: int
    settings_digest: str
    replica: int = 0
    device: str = ""


class ReplicaStates:
    def __init__(self) -> None:
        # By model and replica, with the digest of the settings.
        self._engines: dict[int, dict[int, tuple[str, places.Row]]] = {}

    @property
    def model_ids(self) -> set[int]:
        return {model_id for model_id, engines in list(self._engines.items()) if engines}

    def of_model(self, subject: Subject, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return a report about one engine as a report about its model. Earlier reports about
        other settings are obsolete."""
        model_id, digest, replica, device = subject
        known = self._engines.get(model_id, {}).items()
        engines = {at: each for at, each in known if at != replica and each[0] == digest}
        if values["state"] != EngineState.UNLOADED:
            row = {name: values[name] for name in ("pid", "num_restarts")}
            row |= {"replica": replica, "device": device, "state": str(values["state"])}
            engines[replica] = digest, row | {"error": values.get("last_error", "")}
        self._engines[model_id] = engines
        if not engines:
            return {**values, "replicas": []}
        of_model = {**values, **places.aggregate(self.rows(model_id))}
        is_sole = len(engines) == 1 and not replica
        return of_model | ({"replicas": []} if is_sole else {})

    def rows(self, model_id: int) -> list[places.Row]:
        return [row for _, (_, row) in sorted(dict(self._engines.get(model_id, {})).items())]


# A single node writes all reports. One thread keeps the order: a report about a model has the
# states of all engines of this model.
_replicas = ReplicaStates()
_thread = ThreadPoolExecutor(1, thread_name_prefix="status")


async def report(
    subject: Subject,
    state: EngineState,
    num_restarts: int,
    attempts: LoadAttempts,
    *,
    error: str = "",
    forgets_error: bool = False,
    picture_failure: str = "",
    **columns: object,
) -> None:
    """Write the state of an engine with other columns, and the state of its model. The last error
    stays until the engine is ready, or the report `forgets_error`; of an engine that is ready it is
    the failure of the self-test."""
    values: dict[str, object] = {
        "state": state,
        "settings_digest": subject.settings_digest,
        "num_restarts": num_restarts,
        "pid": None,
        "num_attempts": attempts.num_failed,
        "max_attempts": attempts.max,
        "next_attempt_at": None,
        "has_former": False,
        **columns,
    }
    if error or forgets_error or state is EngineState.READY:
        unseen = picture_failure and _pictures_failed_on(subject) + picture_failure
        values["last_error"] = error or unseen
        values["num_failures_in_row"] = (F("num_failures_in_row") + 1) if error else 0
    await _report_model(subject.model_id, _replicas.of_model(subject, values))


# The last report of each model that the database did not take. The next reports do not wait for
# the database then, because models that load wait for their reports.
_unwritten: dict[int, dict[str, Any]] = {}


async def _report_model(model_id: int, values: dict[str, Any]) -> None:
    if not _unwritten:
        named = {"model_id": model_id, "state": values["state"]}
        if await _write_or_warn(named, _write, model_id, values):
            return
    _unwritten[model_id] = _unwritten.get(model_id, {}) | values


async def write_again() -> None:
    """Write the reports that the database did not take. Call it when the database answers."""
    unwritten = dict(_unwritten)
    _unwritten.clear()
    for model_id, values in unwritten.items():
        await _report_model(model_id, values)


async def report_pictures(subject: Subject, failure: str, asked_at: datetime) -> None:
    """Write the result of a test for which an administrator has asked. After a passed test an
    earlier failure on this device is obsolete."""
    await _write_or_warn({"model_id": subject.model_id}, _end_test, subject, failure, asked_at)


def _pictures_failed_on(subject: Subject) -> str:
    return f"{PICTURES_FAILED} {subject.device}: "


def _end_test(subject: Subject, failure: str, asked_at: datetime) -> None:
    rows = EngineStatus.objects.filter(model_id=subject.model_id)
    failed = _pictures_failed_on(subject)
    if failure:
        rows.update(last_error=failed + failure)
    else:
        rows.filter(last_error__startswith=failed).update(last_error="")
    rows.update(changed_at=timezone.now())
    asked = ServedModel.objects.filter(pk=subject.model_id, test_asked_at=asked_at)
    asked.update(test_asked_at=None)
    change_signal.send()


async def change(model_id: int, **columns: object) -> None:
    await _try_to_change({model_id: columns})


async def report_waits(waits: Mapping[int, Wait], *, is_again: bool = False) -> bool:
    """Write which requests wait for models, by model id; a number of 0 ends a wait. `is_again`:
    only where another host has written that none wait. Returns whether the database has taken
    it."""
    changes: dict[int, dict[str, object]] = {
        model_id: {
            "num_waiting_to_load": wait.num_requests,
            "waiting_since": datetime.fromtimestamp(wait.since_s, UTC),
        }
        for model_id, wait in waits.items()
    }
    return await _try_to_change(changes, {"num_waiting_to_load": 0} if is_again else None)


async def _try_to_change(
    changes: Mapping[int, Mapping[str, object]], present: Mapping[str, object] | None = None
) -> bool:
    """`present`: what the rows must have."""
    return await _write_or_warn({"model_ids": list(changes)}, _change, changes, present or {})


async def _write_or_warn(
    named: Mapping[str, object], write: Callable[..., None], *values: object
) -> bool:
    """Returns whether the database has taken it."""
    try:
        await asyncio.get_running_loop().run_in_executor(_thread, giving_back(write), *values)
    except DatabaseError as failure:
        log.warning("state not written", extra={"fields": {**named, "error": failure}})
        return False
    return True


def _change(changes: Mapping[int, Mapping[str, object]], present: Mapping[str, object]) -> None:
    for model_id, values in changes.items():
        EngineStatus.objects.filter(model_id=model_id, **present).update(**values)


def _write(model_id: int, values: dict[str, object]) -> None:
    if ServedModel.objects.filter(pk=model_id).exists():
        if rows := places.report(model_id, _replicas.rows(model_id)):
            values = values | places.aggregate(rows)
        EngineStatus.objects.get_or_create(model_id=model_id)
        changed = {**values, "changed_at": timezone.now()}
        EngineStatus.objects.filter(model_id=model_id).update(**changed)
        error = str(values.get("last_error") or "").partition("\n\n")[0]
        record_event(model_id, str(values["state"]), error)
        change_signal.send()


@giving_back
def reset(found: Collection[int]) -> None:
    """The last node's states are obsolete, except of engines that have outlived it or that this one
    has reported. Models that were asleep still are."""
    elsewhere = places.models_of_others()
    known = {*found, *_replicas.model_ids, *elsewhere}
    places.forget_waits()
    EngineStatus.objects.exclude(model_id__in=elsewhere).update(has_former=False, replicas=[])
    EngineStatus.objects.exclude(model_id__in=known).exclude(state=EngineState.ASLEEP).update(
        state=EngineState.UNLOADED, pid=None, next_attempt_at=None
    )
