"""Usage summed by minute, hour and day: rows of numbers, and a table of their dimensions.

Only `usage/rollups` writes them.
"""

from django.db import models

from vinery_accounts.base.errors import Outcome


class UsageSlice(models.Model):
    """One combination of the dimensions by which usage is grouped and filtered. A coarser slice
    leaves columns empty; `dimensions` names the columns that it has. Slices are never changed and
    never deleted. A key or user that is renamed gets a new slice, so the newest slice of an id has
    its latest name."""

    dimensions = models.CharField(
        max_length=16,
        db_column="grain",
        help_text="See `usage/dimensions`.",
    )
    digest = models.CharField(max_length=32, unique=True, help_text="A hash of the columns below.")
    key_id = models.BigIntegerField(null=True)
    key_name = models.CharField(max_length=100)
    user_id = models.BigIntegerField(null=True)
    username = models.CharField(max_length=150)
    project_id = models.BigIntegerField(null=True)
    project_name = models.CharField(max_length=100, blank=True, default="")
    organization_id = models.BigIntegerField(null=True)
    organization_name = models.CharField(max_length=100, blank=True, default="")
    model = models.CharField(max_length=255, blank=True)
    endpoint = models.CharField(max_length=64)
    outcome = models.CharField(
        max_length=16, choices=[(outcome.value, outcome.label) for outcome in Outcome]
    )
    status_class = models.PositiveSmallIntegerField(
        null=True, help_text="The first digit of the HTTP status; empty without an answer."
    )

    class Meta:
        indexes = [
            models.Index(fields=["dimensions", "key_id"], name="slice_by_key"),
            models.Index(fields=["dimensions", "user_id"], name="slice_by_user"),
            models.Index(fields=["dimensions", "project_id"], name="slice_by_project"),
        ]

    def __str__(self) -> str:
        return f"{self.key_name} {self.model} {self.endpoint} {self.outcome}"


class Rollup(models.Model):
    """The sums of one slice in one unit of time."""

    # Unix time in seconds: smaller than a timestamp, and divisible without a calendar.
    start_s = models.BigIntegerField()
    slice = models.ForeignKey(
        UsageSlice, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    num_requests = models.BigIntegerField(default=0)
    num_errors = models.BigIntegerField(default=0)
    num_taken = models.BigIntegerField(
        default=0, help_text="Requests whose prompt an engine accepted: limits count these."
    )
    # The errors by cause; unknown for records that were deleted before these columns came.
    num_limited = models.BigIntegerField(default=0)  # refused with 429
    num_client_errors = models.BigIntegerField(default=0)  # refused with another 4xx
    num_server_errors = models.BigIntegerField(default=0)  # failed or interrupted
    # Answers that a limit ended, which are no errors.
    num_cut_short = models.BigIntegerField(default=0)
    num_prompt_tokens = models.BigIntegerField(default=0)
    num_cached_tokens = models.BigIntegerField(default=0)
    num_image_tokens = models.BigIntegerField(default=0)
    num_video_tokens = models.BigIntegerField(default=0)
    num_audio_tokens = models.BigIntegerField(default=0)
    num_output_tokens = models.BigIntegerField(default=0)
    num_reasoning_tokens = models.BigIntegerField(default=0)
    num_media = models.BigIntegerField(default=0)
    num_media_bytes = models.BigIntegerField(default=0)
    num_media_pixels = models.BigIntegerField(default=0)
    weighted_tokens = models.FloatField(default=0)
    histograms = models.BinaryField(default=b"", help_text="Latencies: see `usage/histogram`.")

    class Meta:
        abstract = True
        constraints = [
            models.UniqueConstraint(fields=["start_s", "slice"], name="one_%(class)s_of_a_slice")
        ]
        indexes = [models.Index(fields=["slice", "start_s"], name="%(class)s_by_slice")]

    def __str__(self) -> str:
        return f"{self.slice_id} at {self.start_s}"


class MinuteRollup(Rollup):
    """Requests that arrived in one minute."""


class HourRollup(Rollup):
    """Requests that arrived in one hour."""


class DayRollup(Rollup):
    """Requests that arrived on one day, in UTC."""


class RetentionCutoff(models.Model):
    """The retention cutoff of a usage table: older rows may have been deleted. Stored, because a
    longer retention setting does not bring deleted rows back."""

    table = models.CharField(max_length=32, unique=True)
    kept_since = models.DateTimeField()

    class Meta:
        db_table = "accounts_usagehorizon"

    def __str__(self) -> str:
        return f"{self.table} since {self.kept_since}"
