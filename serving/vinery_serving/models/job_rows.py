"""Jobs, long work on models that the node carries out, and the history of models.

Administrators write the column `asked` of a job, the node writes the state and the result. The
process of a job may be killed at any time: the job restarts, and continues where its kind can. See
`node.job_runner`.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import ClassVar, Final

from django.apps import apps
from django.conf import settings
from django.db import models
from django.utils import timezone

from vinery_accounts.base.encryption import cipher
from vinery_serving.processes.logs.file import log_path


class JobKind(models.TextChoices):
    PULL = "pull", "pull"
    CONVERT = "convert", "convert"
    BENCH = "bench", "bench"
    TUNE = "tune", "tune"
    FETCH = "fetch", "fetch"  # of the host that its parameters name


class JobState(models.TextChoices):
    WAITING = "waiting", "waiting"  # for the node, a turn or the next attempt
    RUNNING = "running", "running"
    PAUSED = "paused", "paused"
    DONE = "done", "done"
    FAILED = "failed", "failed"
    CANCELLED = "cancelled", "cancelled"


class Asked(models.TextChoices):
    """The last request of an administrator for a job."""

    RUN = "run", "run"
    PAUSE = "pause", "pause"
    CANCEL = "cancel", "cancel"


UNFINISHED: Final = (JobState.WAITING, JobState.RUNNING, JobState.PAUSED)
# Jobs that make the folder of a model: no engine can load the folder before the end.
FOLDER_KINDS: Final = (JobKind.PULL, JobKind.CONVERT)
SECRET_PURPOSE: Final = b"vinery jobs"


class SecretLost(Exception):
    """No configured key decrypts the secret of a job. The message says what to do."""


class ModelJob(models.Model):
    ENCRYPTED: ClassVar = {"secret": SECRET_PURPOSE}  # columns with purposes

    model = models.ForeignKey("serving.ServedModel", on_delete=models.CASCADE, related_name="jobs")
    kind = models.CharField(max_length=16, choices=JobKind.choices)
    parameters = models.JSONField(default=dict, help_text="What its kind needs. No secrets.")
    secret = models.TextField(
        default="",
        db_default="",  # a server of an earlier version writes rows, too
        blank=True,
        editable=False,
        help_text="The end of the URL from ? on, encrypted; empty: none, or the job has ended.",
    )
    asked = models.CharField(max_length=8, choices=Asked.choices, default=Asked.RUN)
    state = models.CharField(max_length=16, choices=JobState.choices, default=JobState.WAITING)
    stage = models.CharField(
        max_length=200, blank=True, help_text="What it does now, in words for administrators."
    )
    done_bytes = models.BigIntegerField(default=0)
    total_bytes = models.BigIntegerField(null=True, blank=True, help_text="null: unknown.")
    bytes_per_s = models.FloatField(default=0.0, help_text="Over the last seconds.")
    result = models.JSONField(default=dict, blank=True)
    error = models.TextField(blank=True, help_text="What happened and what to do.")
    num_attempts = models.PositiveIntegerField(
        default=0, help_text="How often it was begun since an administrator asked for it."
    )
    next_attempt_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            # Two processes would write the same folder.
            models.UniqueConstraint(
                fields=["model", "kind"],
                condition=models.Q(state__in=UNFINISHED) & ~models.Q(kind=JobKind.FETCH),
                name="one_unfinished_job",
                violation_error_message="The model has a job of this kind, which has not ended.",
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} of {self.model}"

    @property
    def is_unfinished(self) -> bool:
        return self.state in UNFINISHED

    @property
    def left_s(self) -> float | None:
        """How long the rest takes at the present speed; None: unknown."""
        if self.state != JobState.RUNNING or not self.total_bytes or self.bytes_per_s <= 0:
            return None
        return max(0, self.total_bytes - self.done_bytes) / self.bytes_per_s

    @property
    def log_path(self) -> Path:
        return log_path(Path(settings.VINERY_LOG_DIR), f"job-{self.pk}")

    @property
    def state_text(self) -> str:
        """The state in words, with the change that the node has not followed yet."""
        if self.is_unfinished and self.asked == Asked.CANCEL:
            return "being cancelled"
        if self.state == JobState.RUNNING and self.asked == Asked.PAUSE:
            return "being paused"
        if self.state == JobState.WAITING and self.next_attempt_at is not None:
            return f"waiting for attempt {self.num_attempts + 1}"
        return str(self.state)

    @property
    def actions(self) -> list[str]:
        if not self.is_unfinished:
            return ["resume"] if self.state in (JobState.FAILED, JobState.CANCELLED) else []
        if self.asked == Asked.CANCEL:
            return []
        pause = ["pause"] if self.asked != Asked.PAUSE else []
        is_paused = self.state == JobState.PAUSED or not pause
        return [*pause, *(["resume"] if is_paused else []), "cancel"]

    @property
    def percent(self) -> int | None:
        """The done part of an unfinished job; None: unknown, or ended."""
        if not self.is_unfinished or not self.total_bytes:
            return None
        return min(100, 100 * self.done_bytes // self.total_bytes)

    @property
    def progress(self) -> str:
        """`fetching x.bin, 1.2 of 3.4 GB, 12 MB/s, 3 min left`, as far as it is known."""
        if not self.is_unfinished:
            return ""
        parts = [self.stage] if self.stage else []
        if self.total_bytes:
            parts.append(f"{bytes_text(self.done_bytes)} of {bytes_text(self.total_bytes)}")
        if self.state == JobState.RUNNING and self.bytes_per_s:
            parts.append(f"{bytes_text(int(self.bytes_per_s))}/s")
        if (left_s := self.left_s) is not None:
            parts.append(f"{left_s:.0f} s left" if left_s < 100 else f"{left_s / 60:.0f} min left")
        return ", ".join(parts)


def bytes_text(num_bytes: int) -> str:
    number, units = float(num_bytes), ["B", "KB", "MB", "GB", "TB"]
    while number >= 1000 and len(units) > 1:
        number, units = number / 1000, units[1:]
    return f"{number:.3g} {units[0]}"


def encrypted(secret: str) -> str:
    return cipher(SECRET_PURPOSE).encrypt(secret.encode()).decode() if secret else ""


def secret_of(job: ModelJob) -> str:
    """Raises `SecretLost`."""
    from cryptography.fernet import InvalidToken

    try:
        return cipher(SECRET_PURPOSE).decrypt(job.secret.encode()).decode() if job.secret else ""
    except InvalidToken:
        raise SecretLost(
            "The end of the URL cannot be decrypted: VINERY_SECRET_KEY has changed. Pull the whole "
            "URL again."
        ) from None


def wait_for_attempt(job: ModelJob, pause_s: float) -> None:
    next_at = timezone.now() + timedelta(seconds=pause_s)
    ModelJob.objects.filter(pk=job.pk).update(state=JobState.WAITING, next_attempt_at=next_at)


# -- The history of a model: each change of its state, with the reason

# Events that are kept of each model. More of them are deleted, the oldest first.
MAX_EVENTS: Final = 500


class ModelEvent(models.Model):
    model = models.ForeignKey(
        "serving.ServedModel", on_delete=models.CASCADE, related_name="events"
    )
    at = models.DateTimeField(auto_now_add=True)
    state = models.CharField(max_length=16, help_text="The state that the model had from then on.")
    reason = models.TextField(blank=True, help_text="Why it changed; empty: as it was asked to.")

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.model_id}: {self.state}"


def record_event(model_id: int, state: str, reason: str = "") -> None:
    """Add an event. The event is dropped if the newest event has the same state, and the reason is
    the same or empty. Raises DatabaseError."""
    events = ModelEvent.objects.filter(model_id=model_id)
    newest = events.first()
    if newest is not None and newest.state == state and reason in ("", newest.reason):
        return
    # Models know jobs, and not the other way round.
    if not apps.get_model("serving", "ServedModel").objects.filter(pk=model_id).exists():
        return
    ModelEvent.objects.create(model_id=model_id, state=state, reason=reason)
    if events.count() > MAX_EVENTS + 50:  # deleting costs a query
        kept = events.values_list("pk", flat=True)[MAX_EVENTS - 1]
        events.filter(pk__lt=kept).delete()


class SpeedResult(models.Model):
    model = models.ForeignKey(
        "serving.ServedModel", on_delete=models.CASCADE, related_name="speeds"
    )
    measured_at = models.DateTimeField(auto_now_add=True)
    folder = models.CharField(max_length=1024)
    device = models.CharField(max_length=64)
    device_name = models.CharField(max_length=256, blank=True, help_text="Empty: unknown.")
    options = models.JSONField(default=dict, help_text="The engine options at that time.")
    versions = models.JSONField(default=dict, help_text="Of Vinery, OpenVINO and OpenVINO GenAI.")
    num_prompt_tokens = models.PositiveIntegerField(help_text="Of each request.")
    num_output_tokens = models.PositiveIntegerField(help_text="Of each request.")
    num_other_tokens = models.PositiveBigIntegerField(
        help_text="That clients used meanwhile: they made the measured requests slower."
    )
    points = models.JSONField(
        help_text="For each number of streams: prompt_tokens_per_s and output_tokens_per_s of all "
        "streams together, the median first_token_s, and memory_bytes of the engine."
    )

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.model}, {self.measured_at:%Y-%m-%d %H:%M}"

    def value(self, streams: int, name: str) -> float | None:
        """Return one measured value; None: this number of streams was not measured."""
        found = (point[name] for point in self.points if point["streams"] == streams)
        return next(found, None)


def newest_speeds() -> dict[int, SpeedResult]:
    newest = SpeedResult.objects.order_by().values("model_id").annotate(last=models.Max("pk"))
    rows = SpeedResult.objects.filter(pk__in=newest.values("last"))
    return {each.model_id: each for each in rows}
