"""The node's report of a model's engine, and the states that administrators see."""

from __future__ import annotations

from typing import Any, Final

from django.db import models

# In the run folder: why web processes cannot read the files of models, by the keys of settings.
UNREADABLE: Final = "unreadable.json"
# The beginning of the last error of a vision model that fails its self-test.
PICTURES_FAILED: Final = "The self-test with pictures failed on"


class EngineState(models.TextChoices):
    UNLOADED = "unloaded"
    LOADING = "loading"
    READY = "ready"
    ASLEEP = "asleep"  # until the next request: idle, or others need the memory
    RETRYING = "retrying"  # loading failed, and is tried again
    FAILED = "failed"  # until files or settings change, or an administrator tries again


class ShownState(models.TextChoices):
    """The state of a model's engine, of the job that makes the folder, or of a pending change."""

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
    model = models.OneToOneField(
        "serving.ServedModel", on_delete=models.CASCADE, related_name="engine"
    )
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
    has_former = models.BooleanField(
        default=False,
        help_text="Whether an engine with former settings serves until this one does.",
    )
    settings_digest = models.CharField(
        max_length=64, blank=True, help_text="Of the settings that this report is about."
    )
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
    replicas = models.JSONField(
        default=list,
        blank=True,
        help_text="The engines of a model with several: number, device, state, process, last error "
        "and restarts of each.",
    )
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        verbose_name_plural = "engine statuses"

    def __str__(self) -> str:
        return f"{self.model_id}: {self.state}"

    @property
    def has_failed(self) -> bool:
        return self.state in (EngineState.RETRYING, EngineState.FAILED)

    @property
    def work(self) -> Any:
        """What the engine does now, `EngineStats`, if the model was loaded with it; else None."""
        return getattr(self.model, "engine_work", {}).get(self.model.name)

    @property
    def memory_text(self) -> str:
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
    def attempts_text(self) -> str:
        if not self.num_attempts:
            return ""
        failed, next_at = f"{self.num_attempts} of {self.max_attempts} failed", self.next_attempt_at
        return failed if next_at is None else f"{failed}; the next is at {next_at:%H:%M:%S} UTC"

    @property
    def reason(self) -> str:
        return self.last_error.partition("\n\n")[0]

    @property
    def picture_failure(self) -> str:
        """Why the self-test of a vision model failed; empty: it did not."""
        return self.reason if self.reason.startswith(PICTURES_FAILED) else ""
