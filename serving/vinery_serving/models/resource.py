"""Served models and their other names as resources: what API and commands show and change."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.utils import timezone
from rest_framework import serializers

from vinery_accounts.access import changes
from vinery_accounts.access.access import Access
from vinery_accounts.models import ApiKey, Limit, ModelWeight, Project
from vinery_accounts.resources import fields
from vinery_accounts.resources.base import Conflict, PlatformResource, RowAction, columns_of
from vinery_accounts.resources.fields import Filters, StrictModelSerializer, serializer_of
from vinery_serving.models import hub_resource, job_requests, registry
from vinery_serving.models.engine_status import ShownState
from vinery_serving.models.engine_work import IDLE, EngineSerializer, engine_work
from vinery_serving.models.models import ModelAlias, ServedModel


class ModelAliasSerializer(StrictModelSerializer):
    """Another name for one model or several."""

    targets = serializers.JSONField(
        help_text='The models by their weights, such as `{"qwen-a": 90, "qwen-b": 10}`. Each '
        "request gets one of those that can answer, by chance; models with a weight of 0 answer "
        "only if no other can."
    )

    class Meta:
        model = ModelAlias
        fields = ["id", "name", "targets", "created_at", "updated_at"]


class ModelAliases(PlatformResource[ModelAlias]):
    """Other names for models, between which the requests of a name are divided by weights. They
    are for administrators of the platform, and in force within a second. Usage, limits and the
    answer's `model` are those of the model that answers."""

    model = ModelAlias
    serializer = ModelAliasSerializer
    filters = Filters.of(name=fields.text_filter("Exactly this name."))
    ordering = search = ("name",)
    one, many = "an alias", "aliases"
    verbs = frozenset({"create", "change", "remove"})
    help = {
        "remove": "Requests for the name get 404 from then on. Its models stay. To undo this, "
        "create the alias again."
    }
    empty_text = "No aliases yet: clients send the names of the models themselves."
    columns = columns_of("name targets", targets=lambda row: targets_text(row.targets))


def targets_text(targets: dict[str, int]) -> str:
    """Return `qwen-a`, or `qwen-a 90, qwen-b 10` by weight: PostgreSQL keeps no order of keys."""
    if len(targets) == 1:
        return next(iter(targets))
    by_weight = sorted(targets.items(), key=lambda each: (-each[1], each[0]))
    return ", ".join(f"{name} {weight}" for name, weight in by_weight)


# -- A new name of a model. Aliases follow the name. All else keeps the old name: a limit counts the
# usage records of that name, and a key whose client still sends the old name must not silently get
# another model.


def _renamed(old: str, new: str) -> list[str]:
    """Let the aliases of a model follow its new name, each change audited. Returns a warning for
    each kind of rows that keep the old name."""
    for alias in ModelAlias.objects.all():
        if old in alias.targets:
            targets = {new if name == old else name: num for name, num in alias.targets.items()}
            changes.switch(alias, "update", targets=targets)
    warnings = []
    if num := Limit.objects.filter(model=old).count():
        limits, do = ("limit is", "it does") if num == 1 else ("limits are", "they do")
        warnings.append(f"{num} {limits} for {old}: {do} not hold for {new}.")
    if ModelWeight.objects.filter(model=old).exists():
        warnings.append(f"The token weights are for {old}: they do not count for {new}.")
    lists = ApiKey.objects.filter(revoked_at=None).exclude(allowed_models=[])
    if num := sum(old in names for names in lists.values_list("allowed_models", flat=True)):
        keys, they = ("API key is", "it") if num == 1 else ("API keys are", "they")
        warnings.append(f"{num} {keys} allowed to use {old}: {they} may not use {new}.")
    return warnings


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
    host_labels = serializers.ListField(
        child=serializers.CharField(max_length=320),
        required=False,
        max_length=16,
        help_text="Which hosts may run it, of several: those with all of these labels, such as "
        "host=moon; empty: all.",
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
            *("num_replicas", "replica_devices", "host_labels", "is_loaded", "is_pinned", "idle_s"),
            *("state", "engine", "warnings"),
            *("created_at", "updated_at"),
        ]
        read_only_fields = ["source"]
        extra_kwargs = {
            "name": {"help_text": "The name that clients send as `model`."},
            "folder": {"required": True, "allow_blank": False},
            "device": {"help_text": "One of `/api/devices/`, or several, such as AUTO:GPU,CPU."},
            "is_loaded": {
                "label": "Loaded",
                "help_text": "Whether an engine should be running for it.",
            },
            "is_pinned": {"label": "Pinned"},
            "idle_s": {"label": "Idle time in seconds"},
        }


class ServedModels(PlatformResource[ServedModel]):
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
    search = ("name", "folder")
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
        "remove": "Stop serving a model. Its engine ends, with its running requests, and its "
        "history is deleted. Its folder stays, and the model can be added from there again.",
    }
    empty_text = "No model is served yet. Add one: all it takes is its folder and a name."
    actions = (
        *hub_resource.ACTIONS,
        RowAction(
            "load",
            lambda row: registry.load(row, True),
            "Load a model, wake one that is asleep, or try again one that could not be loaded.",
            "being loaded",
        ),
        RowAction(
            "unload",
            lambda row: registry.load(row, False),
            "Unload a model, and keep it on the list. Its running requests end.",
            "being unloaded",
        ),
        RowAction(
            "retry",
            lambda row: _retried(row),
            "Try to load a model again that could not be loaded.",
            "being loaded",
        ),
        RowAction(
            "self-test",
            lambda row: _tested(row),
            "Show a loaded vision model known pictures, beside its requests. If it does not pass, "
            "`last_error` of its engine has the reason within a minute.",
            "being tested",
        ),
        RowAction(
            "bench",
            lambda row: _or_conflict(row, lambda: job_requests.measure(row)),
            "Measure the speed of a loaded model on this host, beside its requests. "
            "`/api/speed-results/` has the result within minutes.",
            "being measured",
        ),
        RowAction(
            "tune",
            lambda row, **values: _or_conflict(
                row, lambda: job_requests.tune(row, job_requests.Tune(**values))
            ),
            "Look for faster engine options in trials beside the running engine. The job of kind "
            "tune in `/api/model-jobs/` has what each gave.",
            "being tuned",
            serializer=serializer_of(job_requests.Tune),
        ),
        RowAction(
            "apply-tuning",
            lambda row: _or_conflict(row, lambda: job_requests.apply_tuning(row)),
            "Set the best options that the last tuning has found. An engine with them takes over.",
            "changed",
        ),
    )
    columns = columns_of(
        "name state=state_text task device folder waiting=waiting_text last_error=status.reason"
    )

    def load(self, rows: Sequence[ServedModel]) -> Sequence[ServedModel]:
        work = engine_work() if any(row.status.pid for row in rows) else IDLE
        for row in rows:
            row.engine_work = work  # type: ignore[attr-defined]
        return rows

    def change(self, access: Access, row: ServedModel, values: Mapping[str, Any]) -> ServedModel:
        """Change a model. After a new name, `warnings` of the row names rows with the old name."""
        old_name = ServedModel.objects.values_list("name", flat=True).get(pk=row.pk)
        if values.get("folder", row.folder) != row.folder:
            values = {**values, "source": {}}
        row = super().change(access, row, values)
        if row.name != old_name:
            row.warnings = _renamed(old_name, row.name)  # type: ignore[attr-defined]
        return row


def _retried(row: ServedModel) -> ServedModel:
    """Raises `Conflict` for a model that has not failed."""
    if not row.is_loaded:
        raise Conflict(f"{row} is not loaded: load it.")
    if not row.status.has_failed:
        raise Conflict(f"{row} has not failed: it is {row.state_text}.")
    return registry.retry(row)


def _tested(row: ServedModel) -> ServedModel:
    """Raises `Conflict` for a model without vision, or without an engine."""
    if not row.takes_pictures:
        raise Conflict(f"{row} takes text only: there is no picture to show it.")
    if row.shown_state is not ShownState.READY:
        done = "load it" if not row.is_loaded else "wait until it is ready"
        raise Conflict(f"{row} is not loaded, it is {row.state_text}: {done}, then test it.")
    changes.switch(row, "self-test", test_asked_at=timezone.now())
    return row


def _or_conflict(row: ServedModel, ask: Callable[[], object]) -> ServedModel:
    try:
        result = ask()
    except ValidationError as error:
        raise Conflict(" ".join(error.messages)) from None
    return result if isinstance(result, ServedModel) else row


MODEL_ALIASES: Final = ModelAliases()
MODELS: Final = ServedModels()
