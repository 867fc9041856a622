"""The tables of served models and of their other names."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models

from vinery_serving.core.model_files import COPIES, copy_of, folders_of
from vinery_serving.core.tasks import Task, check_output_format
from vinery_serving.engine.options import EngineOptions, of_engine, parse_options
from vinery_serving.models import devices
from vinery_serving.models.devices import check_device, check_device_options
from vinery_serving.models.engine_status import UNREADABLE, EngineState, EngineStatus, ShownState
from vinery_serving.models.host_rows import check_labels
from vinery_serving.models.job_rows import FOLDER_KINDS, JobKind, JobState, ModelJob

# What reads files and sockets is imported where it is used: most commands do neither.
if TYPE_CHECKING:
    from vinery_serving.models.folder_options import Findings

MODEL_NAME: Final = RegexValidator(
    r"^[A-Za-z0-9][A-Za-z0-9._:/-]*\Z",
    "Use letters, digits and . _ : / - only, beginning with a letter or digit.",
)
ALIAS_NAME: Final = RegexValidator(
    r"^[A-Za-z0-9][A-Za-z0-9._:/-]*\*?\Z",
    "Use letters, digits and . _ : / - only, beginning with a letter or digit. The last character "
    "may be a *, for all names that begin so.",
)
_MAX_TARGETS: Final = 20
_MAX_WEIGHT: Final = 1_000_000
# Fields that must suit each other.
_TOGETHER: Final = ("options", "device", "replica_devices", "folder")


def stored_folder(folder: str) -> str:
    """Return a folder as all hosts know it: what is in the folder of the models of the home has the
    path there, because the homes of other hosts may lie elsewhere. The copy of a folder from
    elsewhere has the path of its original."""
    within = folder.removeprefix(f"{settings.VINERY_PULLED_DIR}/")
    return within.removeprefix(COPIES) if within.startswith(f"{COPIES}/") else within


def own_folder(stored: str) -> Path:
    folder = Path(settings.VINERY_PULLED_DIR, stored)
    copy = Path(settings.VINERY_PULLED_DIR, copy_of(stored))
    return copy if not folder.exists() and copy.exists() else folder


# A name of a model that ships with Vinery stands for its folder, in a clone and in a wheel.


def shipped_models() -> tuple[str, ...]:
    files = Path(settings.VINERY_MODELS_DIR).glob("*/config.json")
    return tuple(sorted(each.parent.name for each in files))


def shipped_folder(name: str) -> Path | None:
    """Return the folder of a model that ships with Vinery; None for any other name."""
    return Path(settings.VINERY_MODELS_DIR) / name if name in shipped_models() else None


class FolderField(models.CharField):  # type: ignore[type-arg]
    def from_db_value(self, stored: str, *_: object) -> str:
        return stored and str(own_folder(stored))

    def get_prep_value(self, value: Any) -> Any:
        found = super().get_prep_value(value)
        return stored_folder(found) if isinstance(found, str) else found


class OptionsField(models.JSONField):
    """Engine options, whose paths are stored as `FolderField` stores its own."""

    def from_db_value(self, *given: Any) -> Any:
        return _with_paths(super().from_db_value(*given), lambda path: str(own_folder(path)))

    def get_db_prep_save(self, value: Any, connection: Any) -> Any:
        return super().get_db_prep_save(_with_paths(value, stored_folder), connection)


def _with_paths(options: Any, change: Callable[[str], str]) -> Any:
    """Return options with other paths of the draft model and of adapters."""
    if not isinstance(options, dict):
        return options
    found = dict(options)
    for name in ("draft_model", "eagle3_head"):
        if isinstance(path := found.get(name), str) and path:
            found[name] = change(path)
    if isinstance(adapters := found.get("adapters"), list):
        found["adapters"] = [
            {**each, "path": change(each["path"])}
            if isinstance(each, dict) and isinstance(each.get("path"), str)
            else each
            for each in adapters
        ]
    return found


class ServedModel(models.Model):
    """A model that clients can request. Administrators write it; the node writes `EngineStatus`."""

    name = models.CharField(
        max_length=128,
        unique=True,
        error_messages={"unique": "Another model is served under this name."},
        validators=[MODEL_NAME],
        help_text="The name that clients send as `model`.",
    )
    folder = FolderField(
        max_length=1024,
        blank=True,
        help_text="Absolute path of the folder that holds openvino_model.xml.",
    )
    task = models.CharField(
        max_length=16,
        choices=[(each.value, each.value) for each in Task],
        default=Task.CHAT.value,
        editable=False,
        help_text="What the model in the folder does, as its files have it.",
    )
    source = models.JSONField(
        default=dict,
        blank=True,
        editable=False,
        help_text="Where its files were pulled from: hub, repository, revision, commit and files "
        "with their sizes; empty: an administrator named the folder.",
    )
    device = models.CharField(max_length=64, default="CPU", help_text="CPU, GPU, GPU.1, NPU ...")
    options = OptionsField(
        default=dict, blank=True, help_text="Engine options, such as {'max_running': 16}."
    )
    project_ids = models.JSONField(
        "projects",
        default=list,
        blank=True,
        help_text="The ids of the projects whose keys see and use it; empty: all keys.",
    )
    is_loaded = models.BooleanField(
        "load", default=True, help_text="Whether an engine should be running for it."
    )
    is_pinned = models.BooleanField(
        "pinned",
        default=False,
        help_text="It stays awake: it does not sleep when it is idle, nor to make room for others.",
    )
    num_replicas = models.PositiveSmallIntegerField(
        "replicas",
        default=1,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(64)],
        help_text="How many engines serve it. Each has its own copy of what it needs in memory.",
    )
    replica_devices = models.JSONField(
        "devices of replicas",
        default=list,
        blank=True,
        help_text="The devices of the replicas in turn, such as ['GPU.0', 'GPU.1']. Empty: all on "
        "the device of the model.",
    )
    host_labels = models.JSONField(
        "labels of hosts",
        default=list,
        db_default=[],
        blank=True,
        help_text="Which hosts may run it, of several: those with all of these labels, such as "
        "['host=moon']. Empty: all.",
    )
    idle_s = models.PositiveIntegerField(
        "idle time",
        null=True,
        blank=True,
        validators=[MaxValueValidator(366 * 24 * 3600)],
        help_text="After so many seconds without a request its engine ends, until the next request "
        "comes; 0: it stays. Empty: as VINERY_MODEL_IDLE_S.",
    )
    retried_at = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text="When an administrator last asked to load it again after a failure.",
    )
    test_asked_at = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text="When an administrator asked for the self-test that has not ended yet.",
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    # Whether a job that is about to begin makes the folder: the row may be stored without one.
    awaits_folder = False
    _found: tuple[object, Findings] | None = None

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    def save(self, *args: Any, **kwargs: Any) -> None:
        columns = kwargs.get("update_fields")
        if columns is None or "folder" in columns:
            self.task = str(self._findings.task or self.task)
            if columns is not None:
                kwargs["update_fields"] = {*columns, "task"}
        super().save(*args, **kwargs)

    @property
    def status(self) -> EngineStatus:
        """The node's last report of the engine; UNLOADED without one. If web processes cannot read
        the files, FAILED. One query, unless `engine` was selected."""
        try:
            engine: EngineStatus = self.engine
        except EngineStatus.DoesNotExist:
            engine = EngineStatus(model=self)
        if self.is_loaded and (reason := self.unreadable_reason):
            engine.state, engine.last_error = EngineState.FAILED, reason
        return engine

    @property
    def unreadable_reason(self) -> str:
        """Why web processes cannot read the files; empty: they can, or have not tried."""
        from vinery_serving.transport.sockets import settings_key

        try:
            content = Path(settings.VINERY_RUN_DIR, UNREADABLE).read_bytes()
            reasons = msgspec.json.decode(content, type=dict[str, str])
        except (OSError, msgspec.MsgspecError):
            return ""
        return reasons.get(settings_key(self.settings_digest), "")

    @property
    def shown_state(self) -> ShownState:
        """The state of the engine or of the job that makes the folder, or the change that the node
        has not followed yet."""
        if not self.folder:
            job = self.folder_job
            if job is None or job.state in (JobState.PAUSED, JobState.CANCELLED):
                return ShownState.REGISTERED
            if job.state == JobState.FAILED:
                return ShownState.FAILED
            return ShownState.PULLING if job.kind == JobKind.PULL else ShownState.CONVERTING
        status = self.status
        if not self.is_loaded:
            is_gone = status.state == EngineState.UNLOADED
            return ShownState.UNLOADED if is_gone else ShownState.UNLOADING
        if status.state == EngineState.UNLOADED or self._is_obsolete(status):
            return ShownState.WAITING
        return ShownState(status.state)

    @property
    def folder_job(self) -> ModelJob | None:
        """The newest job that makes the folder; None: there was none. One query."""
        return ModelJob.objects.filter(model=self, kind__in=FOLDER_KINDS).first()

    def _is_obsolete(self, status: EngineStatus) -> bool:
        """Whether the report is older than a change that needs another engine, or than a retry of
        an administrator: the node reports each step after a retry."""
        if status.settings_digest not in ("", self.settings_digest):
            return True
        was_retried = self.retried_at is not None and self.retried_at > status.changed_at
        return status.has_failed and was_retried

    @property
    def settings_digest(self) -> str:
        """SHA-256 of the settings of the engine. Another digest needs another engine."""
        devices = ", ".join([self.device, *self.replica_devices])
        options = options_text(_with_paths(self.options, stored_folder))
        return settings_digest(self.name, stored_folder(self.folder), devices, options)

    @property
    def stored_folders(self) -> list[str]:
        """Its folder, and then those that its options name, as all hosts know them."""
        return [stored_folder(str(each)) for each in folders_of(self.folder, self.options)]

    def device_of(self, replica: int) -> str:
        devices: list[str] = self.replica_devices
        return devices[replica % len(devices)] if devices else self.device

    def prepare(self, names: Iterable[str]) -> None:
        """Read files for a change of these fields before the transaction: others wait for it."""
        if not set(_TOGETHER).isdisjoint(names):
            _ = self._findings

    @property
    def _findings(self) -> Findings:
        """What the files show. Without a graph there, the task stays."""
        from vinery_serving.models.folder_options import Findings, find

        folder = str(shipped_folder(self.folder) or self.folder)
        options = self.options if isinstance(self.options, dict) else {}
        asked = folder, json.dumps(options, sort_keys=True)
        if self._found is None or self._found[0] != asked:
            self._found = asked, find(folder, options) if folder else Findings()
        return self._found[1]

    @property
    def state_text(self) -> str:
        """The state in words: `retrying (2 of 4)` before and during the second of four attempts."""
        state, status = self.shown_state, self.status
        text = str(state.label).lower()
        if state is ShownState.RETRYING:
            text = f"retrying ({status.num_attempts + 1} of {status.max_attempts})"
        if status.has_former and self.is_loaded:
            return f"{text}, the former version serves"
        return text

    @property
    def waiting_text(self) -> str:
        number, since = self.status.num_waiting_to_load, self.status.waiting_since
        if not number or since is None:
            return ""
        requests = "1 request waits" if number == 1 else f"{number} requests wait"
        return f"{requests}, since {since:%H:%M:%S} UTC"

    @property
    def source_text(self) -> str:
        """Where its files were pulled from; empty: an administrator named them."""
        if "repository" in self.source:
            return f"{self.source['repository']} at {self.source['commit'][:12]}"
        return str(self.source.get("url") or self.source.get("path") or "")

    @property
    def takes_pictures(self) -> bool:
        return self.task == Task.VISION

    def clean_fields(self, exclude: Collection[str] | None = None) -> None:
        """Raises ValidationError, also for a folder, a device or options with which no engine can
        start. Fields in `exclude` are not checked: a model whose folder is gone can be renamed.
        The name of a model that ships with Vinery becomes its folder."""
        errors: dict[str, Any] = {}
        exclude = set(exclude or ())
        if not self.folder:
            if not self.awaits_folder and "folder" not in exclude:
                errors["folder"] = [ValidationError("This field is required.")]
            exclude.add("folder")
        if "folder" not in exclude:
            self.folder = str(shipped_folder(self.folder) or self.folder)
            self.task = str(self._findings.task or self.task)
        try:
            super().clean_fields(exclude)
        except ValidationError as error:
            errors = error.update_error_dict(errors)
        for name, check in _CHECKS.items():
            if name not in exclude and name not in errors:
                try:
                    check(getattr(self, name))
                except ValueError as error:
                    errors[name] = [ValidationError(str(error))]
        if "folder" not in exclude and (text := self._findings.folder_error):
            errors.setdefault("folder", [ValidationError(text)])
        changed = [each for each in _TOGETHER if each not in exclude]
        if changed and not errors.keys() & set(_TOGETHER):
            try:
                self._check_options_together()
            except ValueError as error:
                errors[changed[0]] = [ValidationError(str(error))]
        if errors:
            raise ValidationError(errors)

    def _check_options_together(self) -> None:
        options = parse_options(dict(self.options), Task(self.task))
        known = devices.read(Path(settings.VINERY_RUN_DIR))
        for device in {self.device, *self.replica_devices}:
            check_device_options(options, device, known)
        if text := self._findings.options_error:
            raise ValueError(text)


def options_text(options: Mapping[str, Any]) -> str:
    """Return the options of the engine as canonical JSON: equal options compare equal."""
    return json.dumps(of_engine(options), sort_keys=True)


def settings_digest(name: str, folder: str, devices: str, options: str) -> str:
    """Hexadecimal SHA-256 of the settings of engines. `options` comes from `options_text`."""
    return sha256("\0".join((name, folder, devices, options)).encode()).hexdigest()


def _check_options(options: object) -> None:
    """Raises ValueError for options that the engine or the gateway does not have."""
    if not isinstance(options, Mapping):
        raise ValueError('Write a JSON object, such as {"max_running": 16}.')
    parsed = parse_options(dict(options))
    if parsed.output_format:
        check_output_format(parsed.output_format)
    check_processors(parsed)


def check_processors(options: EngineOptions) -> None:
    """Raises ValueError for a function that the machine's administrator has not allowed: otherwise
    an admin key could run any function that can be imported."""
    allowed = settings.VINERY_LOGITS_PROCESSORS
    for name in options.logits_processors:
        if name not in allowed:
            raise ValueError(
                f"logits_processors: {name} is not allowed here. Who runs this server can name it "
                f"in VINERY_LOGITS_PROCESSORS, which has {', '.join(allowed) or 'none'}."
            )


def _check_name(name: str) -> None:
    if ModelAlias.objects.filter(name=name).exists():
        raise ValueError("There is an alias of this name.")


def _check_device(text: str) -> None:
    check_device(text, devices.read(Path(settings.VINERY_RUN_DIR)))


def _check_replica_devices(names: object) -> None:
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise ValueError('Write a list of devices, such as ["GPU.0", "GPU.1"].')
    for each in names:
        _check_device(each)


def _check_projects(ids: object) -> None:
    if not isinstance(ids, list) or not all(type(each) is int for each in ids):
        raise ValueError("Write a list of ids of projects, such as [1, 2].")


_CHECKS: Final[Mapping[str, Callable[[Any], None]]] = {
    "name": _check_name,
    "device": _check_device,
    "replica_devices": _check_replica_devices,
    "options": _check_options,
    "host_labels": check_labels,
    "project_ids": _check_projects,
}


# -- Other names


class ModelAlias(models.Model):
    """Another name of one model, or one that divides its requests between several."""

    name = models.CharField(
        max_length=128,
        unique=True,
        error_messages={"unique": "There is an alias of this name already."},
        validators=[ALIAS_NAME],
        help_text="The name that clients send as `model`; claude-* is each name that begins so.",
    )
    targets = models.JSONField(
        help_text='The models by their weights, such as {"qwen-a": 90, "qwen-b": 10}: each '
        "request gets one of them by chance, those with a weight of 0 only if no other can answer."
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("name",)
        verbose_name_plural = "model aliases"

    def __str__(self) -> str:
        return self.name

    def clean_fields(self, exclude: Collection[str] | None = None) -> None:
        """Raises ValidationError, also for the name of a model, and for targets that are none."""
        super().clean_fields(exclude)
        if self.name in _served([self.name]):
            raise ValidationError({"name": "A model is served under this name."})
        try:
            _check_targets(self.targets)
        except ValueError as error:
            raise ValidationError({"targets": str(error)}) from error


def _check_targets(targets: object) -> None:
    """Raises ValueError for anything but names of served models with their weights."""
    if not isinstance(targets, dict) or not targets:
        raise ValueError('Give models with their weights, such as {"qwen-a": 90, "qwen-b": 10}.')
    if len(targets) > _MAX_TARGETS:
        raise ValueError(f"An alias has at most {_MAX_TARGETS} models.")
    served = _served(targets)
    for name, weight in targets.items():
        if name not in served:
            raise ValueError(f"No model is served under the name {name}.")
        if type(weight) is not int or not 0 <= weight <= _MAX_WEIGHT:
            raise ValueError(f"The weight of {name} must be 0 to {_MAX_WEIGHT:,}.")
    if not any(targets.values()):
        raise ValueError("At least one weight must be above 0.")


def _served(names: Iterable[str]) -> set[str]:
    models_ = ServedModel.objects.filter(name__in=names)
    return set(models_.values_list("name", flat=True))
