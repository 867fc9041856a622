"""Served models as a resource: what the management API and the commands show and change."""

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from vinery_accounts.models import Project
from vinery_accounts.resources import fields
from vinery_accounts.resources.base import Conflict, Resource, RowAction
from vinery_accounts.resources.fields import Filters, StrictModelSerializer, StrictSerializer
from vinery_accounts.services.access import Access, Action
from vinery_serving.catalog import registry, speed_requests
from vinery_serving.catalog.engine_status import EngineState, EngineStatus, ShownState
from vinery_serving.catalog.engine_work import EngineWork
from vinery_serving.catalog.models import ServedModel
from vinery_serving.catalog.renaming import follow_name, left_behind
from vinery_serving.engine.config import ENGINE_MODULES

# A word of the command line of each engine process.
_ENGINES: Final = frozenset(map(str.encode, ENGINE_MODULES.values()))
ResultT = TypeVar("ResultT")

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


_IDLE: Final[Mapping[str, EngineWork]] = {}
# How this process asks engines for their work, by the names of models. The web process sets it.
_ask: list[Callable[[], Mapping[str, EngineWork]]] = [lambda: _IDLE]


def show_engine_work(ask: Callable[[], Mapping[str, EngineWork]]) -> None:
    """Let the API, which may not import the runtime, show what engines do now."""
    _ask[:] = [ask]


class WaitSerializer(serializers.Serializer):  # type: ignore[type-arg]
    """A time in the last 200 requests."""

    p50 = serializers.FloatField(help_text="The median in seconds.")
    p95 = serializers.FloatField(help_text="The 95th percentile in seconds.")


class ReplicaSerializer(serializers.Serializer):  # type: ignore[type-arg]
    """One engine of a model with several."""

    replica = serializers.IntegerField(help_text="From 0.")
    device = serializers.CharField()
    state = serializers.ChoiceField(choices=EngineState.choices)
    pid = serializers.IntegerField(allow_null=True, help_text="Its process; null: it has none.")
    num_restarts = serializers.IntegerField()
    error = serializers.CharField(help_text="Why it ended or did not load; empty: it did not.")


class EngineWorkSerializer(serializers.Serializer):  # type: ignore[type-arg]
    """What an engine does now, and has done since its start."""

    prompt_tokens_per_s = serializers.FloatField(help_text="Prompt tokens, of the last 10 s.")
    output_tokens_per_s = serializers.FloatField(help_text="Generated tokens, of the last 10 s.")
    first_token_s = serializers.SerializerMethodField(
        help_text="From the arrival at the engine to the first token; null: no request yet."
    )
    inter_token_s = serializers.SerializerMethodField(
        help_text="The mean time between the tokens of a request; null: no request yet."
    )
    cache_usage = serializers.FloatField(help_text="The used part of `cache_bytes`, 0 to 1.")
    cache_bytes = serializers.IntegerField(
        help_text="The present size of the KV cache: its maximum with the option `cache_size_gb`, "
        "otherwise it grows as needed."
    )
    prefix_hit_rate = serializers.FloatField(
        allow_null=True,
        help_text="The part of all prompt tokens that the prefix cache had; null: no prompt yet.",
    )
    draft_acceptance = serializers.FloatField(
        allow_null=True,
        help_text="The part of all draft tokens that were accepted; null: there were none.",
    )

    @extend_schema_field(WaitSerializer(allow_null=True))
    def get_first_token_s(self, work: EngineWork) -> dict[str, float] | None:
        return _wait(work.first_token_s)

    @extend_schema_field(WaitSerializer(allow_null=True))
    def get_inter_token_s(self, work: EngineWork) -> dict[str, float] | None:
        return _wait(work.inter_token_s)


def _wait(percentiles: tuple[float, float] | None) -> dict[str, float] | None:
    return None if percentiles is None else dict(zip(("p50", "p95"), percentiles, strict=True))


class EngineSerializer(serializers.ModelSerializer):  # type: ignore[type-arg]
    """The engine of a model, as the node has reported it."""

    reason = serializers.CharField(
        read_only=True, help_text="What happened and what to do; empty: nothing failed."
    )
    changed_at = serializers.DateTimeField(
        read_only=True, allow_null=True, help_text="When it last reported; null: it never has."
    )
    memory_bytes = serializers.SerializerMethodField(
        help_text="Resident memory of the process; null: it does not run on this host."
    )
    num_running = serializers.SerializerMethodField(
        help_text="Answers that are generated now; null: the engine does not answer."
    )
    num_waiting = serializers.SerializerMethodField(
        help_text="Answers that wait for a slot; null: the engine does not answer."
    )
    needed_bytes = serializers.IntegerField(
        read_only=True,
        allow_null=True,
        help_text="Memory that it is expected to need, from its files and from what was measured; "
        "null: not known yet.",
    )
    waiting_since = serializers.SerializerMethodField(
        help_text="When the oldest of them came; null: none waits."
    )

    work = serializers.SerializerMethodField(
        help_text="Speeds, waits and caches; null: the engine does not answer."
    )
    replicas = ReplicaSerializer(
        many=True,
        read_only=True,
        help_text="The engines of a model with several; empty: it has one.",
    )

    class Meta:
        model = EngineStatus
        fields = [
            *("reason", "last_error", "num_attempts", "max_attempts", "next_attempt_at"),
            *("changed_at", "num_restarts", "max_context", "pid", "memory_bytes"),
            *(
                "has_former",
                "replicas",
                "needed_bytes",
                "loaded_bytes",
                "peak_bytes",
                "num_running",
                "num_waiting",
            ),
            *("num_waiting_to_load", "waiting_since", "work"),
        ]
        read_only_fields = fields

    def get_memory_bytes(self, status: EngineStatus) -> int | None:
        return None if status.pid is None else _memory_bytes(status.pid)

    def get_num_running(self, status: EngineStatus) -> int | None:
        work = self._work(status)
        return None if work is None else work.num_running

    def get_num_waiting(self, status: EngineStatus) -> int | None:
        work = self._work(status)
        return None if work is None else work.num_waiting

    def get_waiting_since(self, status: EngineStatus) -> datetime | None:
        return status.waiting_since if status.num_waiting_to_load else None

    @extend_schema_field(EngineWorkSerializer(allow_null=True))
    def get_work(self, status: EngineStatus) -> dict[str, Any] | None:
        work = self._work(status)
        return None if work is None else EngineWorkSerializer(work).data

    def _work(self, status: EngineStatus) -> EngineWork | None:
        known: Mapping[str, EngineWork] = getattr(status.model, "engine_work", _IDLE)
        return known.get(status.model.name)


class TuneSerializer(StrictSerializer):
    """How long to look for better options, and which may win."""

    time_limit_s = serializers.FloatField(
        default=900, min_value=10, max_value=86_400, help_text="No trial begins after it."
    )
    allow_other_answers = serializers.BooleanField(
        default=False, help_text="Whether options that change greedy answers may win."
    )


class ServedModelSerializer(StrictModelSerializer):
    """A model that clients can request."""

    options = serializers.JSONField(
        required=False,
        help_text="The engine options that differ from their defaults, such as "
        '{"max_running": 16}. `vinery model add --help` lists them.',
    )
    project_ids = serializers.ListField(
        child=serializers.IntegerField(min_value=1),
        required=False,
        help_text="The projects whose keys see and use the model; empty: all keys. For other keys "
        "it does not exist.",
    )
    replica_devices = serializers.ListField(
        child=serializers.CharField(max_length=64),
        required=False,
        max_length=64,
        help_text="The devices of the replicas in turn, such as GPU.0 and GPU.1; empty: all on "
        "`device`.",
    )
    state = serializers.ChoiceField(
        choices=ShownState.choices,
        source="shown_state",
        read_only=True,
        help_text="waiting: the node has not followed the last change yet. asleep: the next "
        "request loads it.",
    )
    engine = EngineSerializer(source="status", read_only=True)
    warnings = serializers.ListField(
        child=serializers.CharField(),
        read_only=True,
        default=list,
        help_text="What a change has left as it was, such as limits of the old name.",
    )

    def validate_project_ids(self, ids: list[int]) -> list[int]:
        """Return the ids. Raises ValidationError for an id that no project has."""
        known = set(Project.objects.filter(pk__in=ids).values_list("pk", flat=True))
        missing = [each for each in ids if each not in known]
        if missing:
            raise serializers.ValidationError(f"There is no project with the id {missing[0]}.")
        return ids

    class Meta:
        model = ServedModel
        fields = [
            *("id", "name", "folder", "source", "task", "device", "options", "project_ids"),
            *("num_replicas", "replica_devices", "is_loaded", "is_pinned", "idle_s"),
            *("state", "engine", "warnings"),
            *("created_at", "updated_at"),
        ]
        read_only_fields = ["source"]
        extra_kwargs = {
            "name": {"help_text": "The name that clients send as `model`."},
            "folder": {"required": True, "allow_blank": False},
            "device": {
                "help_text": "One of `/api/devices/`, or several, such as AUTO:GPU,CPU.",
            },
            "is_loaded": {
                "label": "Loaded",
                "help_text": "Whether an engine should be running for it.",
            },
            "is_pinned": {"label": "Pinned"},
            "idle_s": {"label": "Idle time in seconds"},
        }


class ServedModels(Resource[ServedModel]):
    """The models that clients can request, with their engines. They are for administrators of the
    platform. A change is done when it is stored; `state` shows what has become of it."""

    model = ServedModel
    serializer = ServedModelSerializer
    filters = Filters.of(
        name=fields.text_filter("Exactly this name."),
        task=fields.text_filter("Only models that do this, such as chat or embeddings."),
        is_loaded=fields.switch_filter("Only models that should be loaded, or only the others."),
    )
    related = ("engine",)
    ordering = ("name",)
    one, many = "a served model", "served models"
    verbs = frozenset({"create", "change", "remove"})
    help = {
        "create": "Serve a model from a folder on the server, and load it unless `is_loaded` is "
        "false.",
        "change": "Change the fields that the request names. After a change of the folder, the "
        "device, the name, or an option that the engine reads, the engine serves until a new one "
        "has loaded; options that only requests are read with, such as `defaults`, apply to the "
        "next request.",
        "remove": "Stop serving a model. Its folder stays.",
    }
    empty_text = "No model is served yet. Add one: all it takes is its folder and a name."
    actions = (
        RowAction(
            "load",
            Action.MANAGE,
            lambda row: _switched(row, is_loaded=True),
            "Load a model, wake one that is asleep, or try again one that could not be loaded.",
            "being loaded",
        ),
        RowAction(
            "unload",
            Action.MANAGE,
            lambda row: _switched(row, is_loaded=False),
            "Unload a model, and keep it on the list. Its running requests end.",
            "being unloaded",
        ),
        RowAction(
            "retry",
            Action.MANAGE,
            lambda row: _retried(row),
            "Try to load a model again that could not be loaded.",
            "being loaded",
        ),
        RowAction(
            "self-test",
            Action.MANAGE,
            lambda row: _tested(row),
            "Show a loaded vision model known pictures, beside its requests. If it does not pass, "
            "`last_error` of its engine has the reason within a minute.",
            "being tested",
        ),
        RowAction(
            "bench",
            Action.MANAGE,
            lambda row: _measured(row),
            "Measure the speed of a loaded model on this host, beside its requests. "
            "`/api/speed-results/` has the result within minutes.",
            "being measured",
        ),
        RowAction(
            "tune",
            Action.MANAGE,
            lambda row, **values: _tuned(row, **values),
            "Look for faster engine options in trials beside the running engine. The job of kind "
            "tune in `/api/model-jobs/` has what each gave.",
            "being tuned",
            serializer=TuneSerializer,
        ),
        RowAction(
            "apply-tuning",
            Action.MANAGE,
            lambda row: _asked(lambda: speed_requests.apply_tuning(row)),
            "Set the best options that the last tuning has found. An engine with them takes over.",
            "changed",
        ),
    )
    columns = {
        "name": lambda row: row.name,
        "state": lambda row: row.state_text,
        "task": lambda row: row.task,
        "device": lambda row: row.device,
        "folder": lambda row: row.folder,
        "waiting": lambda row: row.waiting_text,
        "last_error": lambda row: row.status.reason,
    }

    def rows(self, access: Access) -> QuerySet[ServedModel]:
        rows = ServedModel.objects.select_related("engine")
        return rows if access.is_superuser else rows.none()

    def load(self, rows: Sequence[ServedModel]) -> Sequence[ServedModel]:
        """Return the models, each with what engines do now."""
        work = _ask[0]() if any(row.status.pid for row in rows) else _IDLE
        for row in rows:
            row.engine_work = work  # type: ignore[attr-defined]
        return rows

    def change(self, access: Access, row: ServedModel, values: Mapping[str, Any]) -> ServedModel:
        """Change a model. After a new name, `warnings` of the row has what still has the old."""
        old_name = ServedModel.objects.values_list("name", flat=True).get(pk=row.pk)
        if values.get("folder", row.folder) != row.folder:
            values = {**values, "source": {}}
        row = super().change(access, row, values)
        follow_name(old_name, row.name)
        row.warnings = left_behind(old_name, row.name)  # type: ignore[attr-defined]
        return row


def _switched(row: ServedModel, *, is_loaded: bool) -> ServedModel:
    registry.load(row, is_loaded)
    return row


def _retried(row: ServedModel) -> ServedModel:
    """Raises `Conflict` for a model that has not failed."""
    if not row.is_loaded:
        raise Conflict(f"{row} is not loaded: load it.")
    if not row.status.has_failed:
        raise Conflict(f"{row} has not failed: it is {row.state_text}.")
    registry.retry(row)
    return row


def _tested(row: ServedModel) -> ServedModel:
    """Raises `Conflict` for a model without vision, or without an engine."""
    if not row.takes_pictures:
        raise Conflict(f"{row} takes text only: there is no picture to show it.")
    if row.shown_state is not ShownState.READY:
        done = "load it" if not row.is_loaded else "wait until it is ready"
        raise Conflict(f"{row} is not loaded, it is {row.state_text}: {done}, then test it.")
    registry.test_pictures(row)
    return row


def _measured(row: ServedModel) -> ServedModel:
    _asked(lambda: speed_requests.begin(row))
    return row


def _tuned(row: ServedModel, **values: Any) -> ServedModel:
    _asked(lambda: speed_requests.begin_tuning(row, **values))
    return row


def _asked(ask: Callable[[], ResultT]) -> ResultT:
    """Ask for a job. Raises `Conflict` if it cannot begin as the model is now."""
    try:
        return ask()
    except ValidationError as error:
        raise Conflict(" ".join(error.messages)) from None


def _memory_bytes(pid: int) -> int | None:
    """Return the resident memory of an engine process of this host; None for another process."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        num_pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return None
    return int(num_pages) * _PAGE_BYTES if _ENGINES.intersection(words) else None


MODELS: Final = ServedModels()
