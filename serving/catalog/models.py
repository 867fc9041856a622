"""The tables of served models and of their engines."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, RegexValidator
from django.db import models

from vinery_serving.catalog import devices
from vinery_serving.catalog.device_options import check_device_options
from vinery_serving.catalog.devices import check_device
from vinery_serving.catalog.folder_options import check_folder_options
from vinery_serving.catalog.jobs import FOLDER_KINDS, JobKind, JobState, ModelJob
from vinery_serving.catalog.shipped import shipped_folder
from vinery_serving.catalog.tasks import UnusableModel, read_task
from vinery_serving.core.media import PictureVerdict
from vinery_serving.core.output_formats import check_output_format
from vinery_serving.core.tasks import Task
from vinery_serving.engine.config import parse_options

_FAST_TOKENIZER: Final = "tokenizer.json"
_GRAPHS: Final = ("openvino_model.xml", "openvino_language_model.xml")
_MAX_IDLE_S: Final = 366 * 24 * 3600


_NAME: Final = RegexValidator(
    r"^[A-Za-z0-9][A-Za-z0-9._:/-]*\Z",
    "Use letters, digits and . _ : / - only, beginning with a letter or digit.",
)
_MAX_TARGETS: Final = 20
_MAX_WEIGHT: Final = 1_000_000


class ServedModel(models.Model):
    """A model that clients can request. Administrators write this table; the node writes
    `EngineStatus`."""

    name = models.CharField(
        max_length=128,
        unique=True,
        error_messages={"unique": "Another model is served under this name."},
        validators=[_NAME],
        help_text="The name that clients send as `model`.",
    )
    folder = models.CharField(
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
    options = models.JSONField(
        default=dict, blank=True, help_text="Engine options, such as {'max_running': 16}."
    )
    is_loaded = models.BooleanField(
        "load", default=True, help_text="Whether an engine should be running for it."
    )
    is_pinned = models.BooleanField(
        "pinned",
        default=False,
        help_text="It stays awake: it does not sleep when it is idle, nor to make room for others.",
    )
    idle_s = models.PositiveIntegerField(
        "idle time",
        null=True,
        blank=True,
        validators=[MaxValueValidator(_MAX_IDLE_S)],
        help_text="After so many seconds without a request its engine ends, until the next request "
        "comes; 0: it stays. Empty: as VINERY_MODEL_IDLE_S.",
    )
    retried_at = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text="When an administrator last asked to load it again after a failure.",
    )
    tested_at = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text="When an administrator last asked to show it known pictures.",
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    # Whether a job that is about to begin makes the folder: the row may be stored without one.
    awaits_folder = False

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Store the row, with the task of its folder if the folder may have changed."""
        columns = kwargs.get("update_fields")
        if columns is None or "folder" in columns:
            self.read_task()
            if columns is not None:
                kwargs["update_fields"] = {*columns, "task"}
        super().save(*args, **kwargs)

    @property
    def status(self) -> EngineStatus:
        """The node's last report of the engine; UNLOADED without one. One query, unless
        `engine` was selected."""
        try:
            engine: EngineStatus = self.engine
        except EngineStatus.DoesNotExist:
            return EngineStatus(model=self)
        return engine

    @property
    def shown_state(self) -> ShownState:
        """The state of the engine or of the job that makes the folder, or the change that the node
        has not followed yet."""
        if not self.folder:
            return self._state_without_folder()
        status = self.status
        if not self.is_loaded:
            is_gone = status.state == EngineState.UNLOADED
            return ShownState.UNLOADED if is_gone else ShownState.UNLOADING
        if status.state == EngineState.UNLOADED or self._is_obsolete(status):
            return ShownState.WAITING
        return ShownState(status.state)

    def _state_without_folder(self) -> ShownState:
        job = self.folder_job
        if job is None or job.state in (JobState.PAUSED, JobState.CANCELLED):
            return ShownState.REGISTERED
        if job.state == JobState.FAILED:
            return ShownState.FAILED
        return ShownState.PULLING if job.kind == JobKind.PULL else ShownState.CONVERTING

    @property
    def folder_job(self) -> ModelJob | None:
        """The newest job that makes the folder; None: there was none. One query."""
        return ModelJob.objects.filter(model=self, kind__in=FOLDER_KINDS).first()

    def _is_obsolete(self, status: EngineStatus) -> bool:
        """Whether the node reported this before a change: it reports each step after one."""
        if status.settings_digest not in ("", self.settings_digest):
            return True
        return status.has_failed and self.updated_at > status.changed_at

    @property
    def settings_digest(self) -> str:
        """Names what the engine depends on. Another digest needs another engine."""
        return settings_digest(self.name, self.folder, self.device, options_text(self.options))

    def read_task(self) -> None:
        """Read the task from the folder. Without a graph there it stays as it is."""
        with contextlib.suppress(UnusableModel):
            self.task = str(read_task(Path(self.folder)) or self.task)

    @property
    def state_text(self) -> str:
        """The state in words: `retrying (2 of 4)` before and during the second of four attempts."""
        state, status = self.shown_state, self.status
        if state is ShownState.RETRYING:
            return f"retrying ({status.num_attempts + 1} of {status.max_attempts})"
        return str(state.label).lower()

    @property
    def waiting_text(self) -> str:
        """How many requests wait for the model, and since when; empty if none does."""
        number, since = self.status.num_waiting_to_load, self.status.waiting_since
        if not number or since is None:
            return ""
        requests = "1 request waits" if number == 1 else f"{number} requests wait"
        return f"{requests}, since {since:%H:%M:%S} UTC"

    @property
    def takes_pictures(self) -> bool:
        """Whether the folder holds a vision model."""
        return self.task == Task.VISION

    @property
    def test_asked_at(self) -> datetime | None:
        """When an administrator asked for the picture test that has not ended yet; None: none."""
        ended_at = self.status.picture_tested_at
        is_due = self.tested_at is not None and (ended_at is None or ended_at < self.tested_at)
        return self.tested_at if is_due else None

    @property
    def pictures_state(self) -> str:
        """The verdict of the picture test in words; empty for a text model."""
        if self.test_asked_at is not None and self.is_loaded:
            return "being tested"
        verdict = self.status.picture_verdict
        return str(PictureVerdictChoices(verdict).label).lower() if verdict else ""

    @property
    def pictures_text(self) -> str:
        """The same with device, time and what was seen, once the test has ended."""
        status, ended_at = self.status, self.status.picture_tested_at
        if ended_at is None or self.test_asked_at is not None:
            return self.pictures_state
        seen = f"{status.picture_test} ({status.picture_test_device}, "
        return f"{self.pictures_state}. {seen}{ended_at:%Y-%m-%d %H:%M:%S} UTC)"

    def clean_fields(self, exclude: Collection[str] | None = None) -> None:
        """Raises ValidationError, also for a folder, a device or options with which no engine can
        start. Fields in `exclude` are not checked: a model whose folder is gone can be renamed.
        The name of a model that ships with Vinery becomes its folder."""
        errors: dict[str, Any] = {}
        if not self.folder:
            if not self.awaits_folder and "folder" not in (exclude or ()):
                errors["folder"] = [ValidationError("This field is required.")]
            exclude = {*(exclude or ()), "folder"}
        if "folder" not in (exclude or ()):
            self.folder = str(shipped_folder(self.folder) or self.folder)
            self.read_task()
        try:
            super().clean_fields(exclude)
        except ValidationError as error:
            errors = error.update_error_dict(errors)
        for name, check in _CHECKS.items():
            if name not in (exclude or ()) and name not in errors:
                try:
                    check(getattr(self, name))
                except ValueError as error:
                    errors[name] = [ValidationError(str(error))]
        changed = [each for each in ("options", "device", "folder") if each not in (exclude or ())]
        if changed and not errors.keys() & {"options", "device", "folder"}:
            try:
                self._check_options_together()
            except ValueError as error:
                errors[changed[0]] = [ValidationError(str(error))]
        if errors:
            raise ValidationError(errors)

    def _check_options_together(self) -> None:
        """Raises ValueError for options that the device or the model does not take."""
        options = parse_options(dict(self.options), Task(self.task))
        known = devices.read(Path(settings.VINERY_RUN_DIR))
        check_device_options(options, self.device, known)
        check_folder_options(options, Path(self.folder))


class ModelAlias(models.Model):
    """Another name for a model, or for several between which its requests are divided."""

    name = models.CharField(
        max_length=128,
        unique=True,
        error_messages={"unique": "There is an alias of this name already."},
        validators=[_NAME],
        help_text="The name that clients send as `model`.",
    )
    targets = models.JSONField(
        help_text='The models by their weights, such as {"qwen-a": 90, "qwen-b": 10}: each '
        "request gets one of them by chance, those with a weight of 0 only if no other can answer.",
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("name",)
        verbose_name_plural = "model aliases"

    def __str__(self) -> str:
        return self.name

    def clean_fields(self, exclude: Collection[str] | None = None) -> None:
        """Raises ValidationError, also for the name of a model, and for targets that no model is
        served under."""
        super().clean_fields(exclude)
        if ServedModel.objects.filter(name=self.name).exists():
            raise ValidationError({"name": "A model is served under this name."})
        try:
            _check_targets(self.targets)
        except ValueError as error:
            raise ValidationError({"targets": str(error)}) from error


class EngineState(models.TextChoices):
    UNLOADED = "unloaded"
    LOADING = "loading"
    READY = "ready"
    ASLEEP = "asleep"  # until a request comes for it: it was idle, or others need the memory
    RETRYING = "retrying"  # it could not load, and is tried again
    FAILED = "failed"  # until its files or settings change, or an administrator tries again


class PictureVerdictChoices(models.TextChoices):
    """`PictureVerdict` with words for administrators."""

    PASSED = PictureVerdict.PASSED.value, "Passed"
    ALIKE = PictureVerdict.ALIKE.value, "Cannot distinguish pictures"
    FAILED = PictureVerdict.FAILED.value, "Failed"
    NO_VISION = PictureVerdict.NO_VISION.value, "No vision"
    UNFINISHED = PictureVerdict.UNFINISHED.value, "Not tested"


class ShownState(models.TextChoices):
    """The state of a model: that of its engine or of the job that makes its folder, or a change
    that is pending."""

    REGISTERED = "registered", "Without files"
    PULLING = "pulling"
    CONVERTING = "converting"

    UNLOADED = "unloaded"
    WAITING = "waiting", "Waiting to load"
    LOADING = "loading"
    READY = "ready"
    ASLEEP = "asleep"
    RETRYING = "retrying"
    FAILED = "failed"
    UNLOADING = "unloading"


class EngineStatus(models.Model):
    model = models.OneToOneField(ServedModel, on_delete=models.CASCADE, related_name="engine")
    state = models.CharField(
        max_length=16, choices=EngineState.choices, default=EngineState.UNLOADED
    )
    last_error = models.TextField(
        blank=True,
        help_text="What happened and what to do; the original error stands below, after a blank "
        "line.",
    )
    pid = models.PositiveIntegerField(null=True, blank=True)
    num_restarts = models.PositiveIntegerField(default=0)
    num_failures_in_row = models.PositiveIntegerField(
        default=0, help_text="How often the engine has failed since it was ready."
    )
    num_attempts = models.PositiveIntegerField(
        default=0, help_text="How many attempts to load it have failed since it was ready."
    )
    max_attempts = models.PositiveIntegerField(
        default=0, help_text="After how many failed attempts it is no longer tried; 0: none failed."
    )
    next_attempt_at = models.DateTimeField(
        null=True, blank=True, help_text="When it is tried again."
    )
    max_context = models.PositiveIntegerField(
        default=0, help_text="Tokens of prompt and output together; 0: unknown."
    )
    settings_digest = models.CharField(
        max_length=64, blank=True, help_text="Of the settings that this report is about."
    )
    picture_verdict = models.CharField(
        max_length=16,
        choices=PictureVerdictChoices.choices,
        blank=True,
        help_text="What a vision model made of known pictures; empty: it takes text only.",
    )
    picture_test = models.TextField(blank=True, help_text="The same as a sentence.")
    picture_test_device = models.CharField(
        max_length=64, blank=True, help_text="The device on which it saw them."
    )
    picture_tested_at = models.DateTimeField(null=True, blank=True)
    needed_bytes = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="Memory that it is expected to need."
    )
    loaded_bytes = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="Measured memory of its process after it had loaded."
    )
    peak_bytes = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="The most that was measured since."
    )
    num_waiting_to_load = models.PositiveIntegerField(
        default=0, help_text="Requests that wait until it is loaded."
    )
    waiting_since = models.DateTimeField(
        null=True, blank=True, help_text="When the oldest of them came."
    )
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        verbose_name_plural = "engine statuses"

    def __str__(self) -> str:
        return f"{self.model_id}: {self.state}"

    @property
    def has_failed(self) -> bool:
        """Whether the model could not load, even if it is tried again by itself."""
        return self.state in (EngineState.RETRYING, EngineState.FAILED)

    @property
    def memory_text(self) -> str:
        """What it needs and what was measured, in words; empty while that is unknown."""
        if self.needed_bytes is None:
            return ""
        needed = f"{self.needed_bytes >> 20} MB are expected"
        if self.loaded_bytes is None or self.peak_bytes is None:
            return f"{needed}; nothing was measured yet"
        return (
            f"{needed}; measured: {self.loaded_bytes >> 20} MB after loading, "
            f"{self.peak_bytes >> 20} MB at most"
        )

    @property
    def can_be_tried(self) -> bool:
        """Whether it is not loaded, although it should be, until a request comes or for good."""
        return self.has_failed or self.state == EngineState.ASLEEP

    @property
    def reason(self) -> str:
        """The last error without the original error below it."""
        return self.last_error.partition("\n\n")[0]


def options_text(options: Mapping[str, Any]) -> str:
    """Canonical JSON, so that equal options compare equal."""
    return json.dumps(options, sort_keys=True)


def settings_digest(name: str, folder: str, device: str, options: str) -> str:
    """Hexadecimal SHA-256 of what an engine depends on. `options` is canonical JSON."""
    return sha256("\0".join((name, folder, device, options)).encode()).hexdigest()


def _check_options(options: object) -> None:
    """Raises ValueError for options that the engine or the gateway does not have."""
    if not isinstance(options, Mapping):
        raise ValueError('Write a JSON object, such as {"max_running": 16}.')
    parsed = parse_options(dict(options))
    if parsed.output_format:
        check_output_format(parsed.output_format)


def _check_name(name: str) -> None:
    """Raises ValueError for the name of an alias."""
    if ModelAlias.objects.filter(name=name).exists():
        raise ValueError("There is an alias of this name.")


def _check_targets(targets: object) -> None:
    """Raises ValueError for anything but names of served models with their weights."""
    if not isinstance(targets, dict) or not targets:
        raise ValueError('Give models with their weights, such as {"qwen-a": 90, "qwen-b": 10}.')
    if len(targets) > _MAX_TARGETS:
        raise ValueError(f"An alias has at most {_MAX_TARGETS} models.")
    served = set(ServedModel.objects.filter(name__in=targets).values_list("name", flat=True))
    for name, weight in targets.items():
        if name not in served:
            raise ValueError(f"No model is served under the name {name}.")
        if type(weight) is not int or not 0 <= weight <= _MAX_WEIGHT:
            raise ValueError(f"The weight of {name} must be 0 to {_MAX_WEIGHT:,}.")
    if not any(targets.values()):
        raise ValueError("At least one weight must be above 0.")


def _check_folder(text: str) -> None:
    """Raises ValueError for a folder that has no OpenVINO model that Vinery can serve."""
    path = Path(text)
    if not path.is_absolute():
        raise ValueError(f"{path} is not an absolute path.")
    if not path.is_dir():
        raise ValueError(f"There is no folder {path}.")
    graph = next((path / name for name in _GRAPHS if (path / name).is_file()), None)
    if graph is None:
        raise ValueError(
            f"{path} has no openvino_model.xml. Export the model first, for example with "
            "`optimum-cli export openvino`."
        )
    weights = graph.with_suffix(".bin")
    if not weights.is_file():
        raise ValueError(f"{path} has no {weights.name}, the weights. Copy the folder again.")
    task = read_task(path)
    if task is Task.RERANK and not (path / _FAST_TOKENIZER).is_file():
        raise ValueError(
            f"{path} has no {_FAST_TOKENIZER}, with which Vinery writes queries and documents as "
            "pairs. Copy it from the original model."
        )


def _check_device(text: str) -> None:
    """Raises ValueError for a device that this machine does not have."""
    check_device(text, devices.read(Path(settings.VINERY_RUN_DIR)))


_CHECKS: Final[Mapping[str, Callable[[Any], None]]] = {
    "name": _check_name,
    "folder": _check_folder,
    "device": _check_device,
    "options": _check_options,
}
