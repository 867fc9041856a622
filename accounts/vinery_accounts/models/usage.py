"""Usage records and refused requests. A record outlives its user, key and model."""

from django.db import models

from vinery_accounts.base.errors import Outcome


class UsageRecord(models.Model):
    """The usage of one request. Ids and names are copied, without foreign keys. Only `usage` writes
    records, exactly one for each request."""

    request_id = models.CharField(max_length=64, unique=True)
    client_request_id = models.CharField(
        max_length=512, blank=True, default="", help_text="The client's `x-client-request-id`."
    )
    created_at = models.DateTimeField("arrived")
    user_id = models.BigIntegerField(null=True)
    username = models.CharField("user", max_length=150)
    key_id = models.BigIntegerField(null=True)
    key_name = models.CharField("key", max_length=100)
    project_id = models.BigIntegerField(null=True)
    project_name = models.CharField("project", max_length=100, blank=True, default="")
    organization_id = models.BigIntegerField(null=True)
    organization_name = models.CharField("organisation", max_length=100, blank=True, default="")
    end_user = models.CharField(
        "end user", max_length=64, blank=True, default="", help_text="The client's own user."
    )
    ip = models.GenericIPAddressField("address", null=True)
    model = models.CharField(max_length=255)
    asked_model = models.CharField(
        max_length=255, blank=True, default="", help_text="The model as the client named it."
    )
    endpoint = models.CharField(max_length=64)
    dialect = models.CharField(max_length=16, help_text="The URL tree: v1 or v3.")
    is_streamed = models.BooleanField("streamed")
    num_prompt_tokens = models.PositiveIntegerField("prompt tokens", default=0)
    num_cached_tokens = models.PositiveIntegerField(
        "cached tokens", default=0, help_text="Part of the prompt tokens."
    )
    num_image_tokens = models.PositiveIntegerField(
        "image tokens", default=0, help_text="Part of the prompt tokens."
    )
    num_video_tokens = models.PositiveIntegerField(
        "video tokens", default=0, help_text="Part of the prompt tokens."
    )
    num_audio_tokens = models.PositiveIntegerField(
        "audio tokens", default=0, help_text="Part of the prompt tokens."
    )
    num_output_tokens = models.PositiveIntegerField("output tokens", default=0)
    num_reasoning_tokens = models.PositiveIntegerField(
        "reasoning tokens", default=0, help_text="Part of the output tokens."
    )
    weighted_tokens = models.FloatField(default=0, help_text="What weighted limits were charged.")
    cost = models.FloatField(
        default=0, db_default=0.0, help_text="By the prices then, in millionths of the currency."
    )
    queue_ms = models.FloatField(null=True)
    prefill_ms = models.FloatField(
        null=True,
        help_text="From the first step of the engine with this request to its first token.",
    )
    first_token_ms = models.FloatField(null=True)
    inter_token_ms = models.FloatField(null=True, help_text="Mean time between two tokens.")
    total_ms = models.FloatField(null=True)
    num_request_bytes = models.PositiveIntegerField("request bytes", default=0)
    num_response_bytes = models.PositiveBigIntegerField("response bytes", default=0)
    num_continuations = models.PositiveIntegerField(
        "continuations",
        default=0,
        help_text="How often another engine went on with the request, because one had ended.",
    )
    num_media = models.PositiveIntegerField(
        "media", default=0, help_text="Pictures, videos and files of the request."
    )
    num_media_bytes = models.PositiveBigIntegerField(
        "media bytes", default=0, help_text="The size of these files."
    )
    num_media_pixels = models.PositiveBigIntegerField(
        "media pixels", default=0, help_text="What the model saw of all pictures, pages and frames."
    )
    mm_hashes = models.TextField(
        "media hashes",
        blank=True,
        default="",
        help_text="The SHA-256 of each, if the client sent them to be checked.",
    )
    fetch_ms = models.FloatField(null=True, help_text="Until all media by URL or path were here.")
    decode_ms = models.FloatField(null=True, help_text="Processor time that decoded the media.")
    encode_ms = models.FloatField(null=True, help_text="The engine's time to encode the media.")
    http_status = models.PositiveSmallIntegerField(
        null=True, help_text="Empty when the process ended before it answered."
    )
    outcome = models.CharField(
        max_length=16, choices=[(outcome.value, outcome.label) for outcome in Outcome]
    )
    finish_reason = models.CharField(max_length=32, blank=True, default="")
    error_code = models.CharField(max_length=64, blank=True, default="")
    # As the client got it, but with "…" for texts of the request; and the path of the field.
    error_message = models.CharField(max_length=500, blank=True, default="")
    error_param = models.CharField("error field", max_length=200, blank=True, default="")
    parameters = models.TextField(  # noqa: DJ001 -- null is quick to add to millions of rows
        null=True, help_text="What the client sent, as a JSON object without texts."
    )
    is_exact = models.BooleanField(
        "exact",
        default=True,
        help_text="Unset after a crash: the figures are those of the last checkpoint.",
    )

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [
            models.Index(fields=["created_at", "id"], name="usage_by_time"),
            models.Index(fields=["user_id", "created_at"], name="usage_by_user"),
            models.Index(fields=["key_id", "created_at"], name="usage_by_key"),
            models.Index(fields=["project_id", "created_at"], name="usage_by_project"),
            models.Index(fields=["model", "created_at"], name="usage_by_model"),
            models.Index(
                fields=["end_user", "created_at"],
                condition=~models.Q(end_user=""),
                name="usage_by_end_user",
            ),
            models.Index(
                fields=["client_request_id", "created_at"],
                condition=~models.Q(client_request_id=""),
                name="usage_by_client_id",
            ),
        ]

    def __str__(self) -> str:
        return self.request_id


class RefusedRequest(models.Model):
    """A limit that refused a request, or in shadow mode would have: one row for each limit."""

    request_id = models.CharField(max_length=64)
    created_at = models.DateTimeField("at")
    user_id = models.BigIntegerField(null=True)
    username = models.CharField("user", max_length=150)
    key_id = models.BigIntegerField(null=True)
    key_name = models.CharField("key", max_length=100)
    project_id = models.BigIntegerField(null=True)
    project_name = models.CharField("project", max_length=100, blank=True, default="")
    organization_id = models.BigIntegerField(null=True)
    organization_name = models.CharField("organisation", max_length=100, blank=True, default="")
    model = models.CharField(max_length=255)
    limit_id = models.BigIntegerField(null=True)
    scope = models.CharField(max_length=300, help_text="What the limit applies to, such as key:12.")
    metric = models.CharField(max_length=16)
    window = models.CharField(max_length=8)
    amount = models.PositiveBigIntegerField(help_text="The limit.")
    level = models.FloatField(help_text="How much of it was used.")
    needed = models.FloatField(help_text="What the request needed.")
    wait_s = models.FloatField(null=True, help_text="Empty: the request exceeds the whole limit.")
    is_shadow = models.BooleanField(
        "shadow", default=False, help_text="The limit only counts; the request passed."
    )

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["request_id", "limit_id"], name="one_refusal_by_a_limit"
            )
        ]
        indexes = [
            models.Index(fields=["created_at", "id"], name="refusal_by_time"),
            models.Index(fields=["key_id", "created_at"], name="refusal_by_key"),
            models.Index(fields=["project_id", "created_at"], name="refusal_by_project"),
        ]

    def __str__(self) -> str:
        return f"{self.request_id}: {self.scope} {self.metric}"


# -- Sums by minute, hour and day, which only `usage/rollups` writes


class UsageSlice(models.Model):
    """One combination of the dimensions by which usage is grouped and filtered. A coarser slice
    leaves columns empty; `dimensions` names the columns that it has. Slices are never changed and
    never deleted. A key or user that is renamed gets a new slice, so the newest slice of an id has
    its latest name."""

    dimensions = models.CharField(
        max_length=16, db_column="grain", help_text="See `usage/dimensions`."
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
    # Errors by cause; unknown for records that were deleted before these columns came.
    num_limited = models.BigIntegerField(default=0)  # refused with 429
    num_client_errors = models.BigIntegerField(default=0)  # refused with another 4xx
    num_server_errors = models.BigIntegerField(default=0)  # failed or interrupted
    # Answers that a limit ended: no errors.
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
    cost = models.FloatField(default=0, db_default=0.0)
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


class SpanRollup(Rollup):
    """The day roll-ups of three days, and by more combinations of columns: see `usage/upkeep`."""

    class Meta(Rollup.Meta):
        # Groups are ranked along the index alone, without their histograms.
        indexes = [
            models.Index(
                fields=[
                    *("slice", "start_s", "num_requests", "num_errors", "num_prompt_tokens"),
                    *("num_cached_tokens", "num_output_tokens", "weighted_tokens", "cost"),
                ],
                name="spanrollup_of_slices",
            )
        ]


class RetentionCutoff(models.Model):
    """The retention cutoff of a usage table: older rows may have been deleted. Stored, because a
    longer retention setting does not bring deleted rows back."""

    table = models.CharField(max_length=32, unique=True)
    kept_since = models.DateTimeField()

    class Meta:
        db_table = "accounts_usagehorizon"

    def __str__(self) -> str:
        return f"{self.table} since {self.kept_since}"
