"""What has changed since release 0.1 until the reminders and the energy of requests went.

A database that has the migrations which this one `replaces` has it. The data of a release's
database change last, when all columns are there.
"""

from collections import Counter, defaultdict
from typing import Any

import django.core.validators
import django.db.models.deletion
from django.db import migrations, models
from django.db.models import F, Q

import vinery_accounts.base.names
import vinery_accounts.base.redaction
from vinery_accounts.usage import histogram
from vinery_accounts.usage.entries import Outcome
from vinery_accounts.usage.histogram import Latency
from vinery_accounts.usage.rollups import RollupDimensions, causes_of, slice_of

_CAUSES = ("num_limited", "num_client_errors", "num_server_errors", "num_cut_short")
_MEDIA = ("num_media", "num_media_bytes", "num_media_pixels", "num_video_tokens")
_UNITS_S = {"MinuteRollup": 60, "HourRollup": 3600, "DayRollup": 86_400}
_REPLACED = (
    "0002_limits_by_the_hour",
    "0003_note_on_keys",
    "0004_confirmed_addresses",
    "0005_concurrent_answers",
    "0006_addresses_by_owners",
    "0007_continued_requests",
    "0008_quarantine",
    "0009_superusers_are_counted",
    "0010_invitations",
    "0011_labels_of_limits",
    "0012_media_of_requests",
    "0013_media_in_rollups",
    "0014_causes_and_messages",
    "0015_end_users_and_media",
    "0016_limits_of_end_users",
)


def withdraw_confirmations(apps: Any, schema_editor: Any) -> None:
    """Mark addresses that owners of organisations gave to users as not confirmed.

    The audit log has who gave each address. Those of superusers and of the command line stay
    confirmed, and those of accounts that the issuer knows already.
    """
    users = apps.get_model("accounts", "User").objects
    givers: dict[str, int | None] = {}
    entries = apps.get_model("accounts", "AuditEntry").objects.order_by("number")
    changes = entries.filter(action__in=("user.create", "user.update"))
    rows = changes.values_list("target_id", "actor_id", "after")
    for target_id, actor_id, after in rows.iterator(chunk_size=1000):
        if "email" in (after or {}):
            givers[target_id] = actor_id
    superusers = set(users.filter(is_superuser=True).values_list("pk", flat=True))
    issued = apps.get_model("socialaccount", "SocialAccount").objects
    linked = set(issued.values_list("user_id", flat=True))
    doubtful = [
        int(target_id)
        for target_id, giver in givers.items()
        if giver is not None and giver not in superusers and int(target_id) not in linked
    ]
    for user_id in doubtful:
        users.filter(pk=user_id).exclude(email="").update(is_email_confirmed=False)


def count_causes(apps: Any, schema_editor: Any) -> None:
    """Change the rollups of each record that has an error, or whose answer is not whole."""
    # By unit, start and digest: what is added to the columns, and the durations by bucket.
    sums: defaultdict[tuple[str, int, str], Counter[str]] = defaultdict(Counter)
    durations: defaultdict[tuple[str, int, str], Counter[int]] = defaultdict(Counter)
    is_meant = ~Q(outcome=Outcome.OK.value) | Q(finish_reason="quota_exceeded")
    records = apps.get_model("accounts", "UsageRecord").objects.filter(is_meant)
    for row in records.order_by("id").iterator(chunk_size=1000):
        outcome, at_s = Outcome(row.outcome), int(row.created_at.timestamp())
        causes = causes_of(outcome, row.http_status, row.finish_reason)
        added = Counter(dict(zip(_CAUSES, map(int, causes), strict=True)))
        for dimensions in RollupDimensions:
            digest = slice_of(row).at(dimensions).digest
            for name, unit_s in _UNITS_S.items():
                key = name, at_s // unit_s * unit_s, digest
                sums[key].update(added)
                if row.total_ms is not None and outcome is not Outcome.OK:
                    bucket = histogram.bucket_index_of(Latency.TOTAL, row.total_ms)
                    durations[key][bucket] += 1
    for (name, start_s, digest), added in sums.items():
        rollups = apps.get_model("accounts", name).objects
        for rollup in rollups.filter(start_s=start_s, slice__digest=digest):
            counts = Counter(histogram.decode(bytes(rollup.histograms)))
            rest = counts - durations[name, start_s, digest]
            rollups.filter(pk=rollup.pk).update(
                histograms=histogram.encode(rest),
                **{column: F(column) + number for column, number in added.items()},
            )


class Migration(migrations.Migration):
    replaces = [("accounts", name) for name in _REPLACED]
    dependencies = [("accounts", "0001_initial"), ("socialaccount", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="apikey",
            name="note",
            field=models.CharField(
                blank=True,
                default="",
                max_length=500,
                validators=[vinery_accounts.base.names.check_characters],
            ),
        ),
        migrations.AddField(
            model_name="user",
            name="is_email_confirmed",
            field=models.BooleanField(
                default=True,
                help_text="An administrator of the platform or the issuer gave the address. Sign-in through the issuer ignores addresses that owners of organisations gave.",
                verbose_name="address confirmed",
            ),
        ),
        migrations.AlterField(
            model_name="limit",
            name="metric",
            field=models.CharField(
                choices=[
                    ("requests", "requests"),
                    ("tokens", "tokens"),
                    ("input_tokens", "input tokens"),
                    ("output_tokens", "output tokens"),
                    ("concurrency", "answers at the same time"),
                    ("weighted_tokens", "weighted tokens"),
                ],
                max_length=16,
            ),
        ),
        migrations.AlterField(
            model_name="limit",
            name="window",
            field=models.CharField(
                choices=[
                    ("minute", "per minute"),
                    ("hour", "per hour"),
                    ("day", "per day"),
                    ("week", "per week"),
                    ("month", "per month"),
                    ("none", "at any time"),
                ],
                max_length=8,
            ),
        ),
        migrations.AddField(
            model_name="usagerecord",
            name="num_continuations",
            field=models.PositiveIntegerField(
                default=0,
                help_text="How often another engine went on with the request, because one had ended.",
                verbose_name="continuations",
            ),
        ),
        migrations.CreateModel(
            name="QuarantinedRequest",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "digest",
                    models.CharField(
                        help_text="A hash of the model and of what its engine was to do; no text of the client.",
                        max_length=32,
                        unique=True,
                    ),
                ),
                (
                    "request_id",
                    models.CharField(
                        help_text="Of the first request that ended two engines.", max_length=64
                    ),
                ),
                ("created_at", models.DateTimeField(verbose_name="since")),
                ("expires_at", models.DateTimeField(db_index=True, verbose_name="expires")),
                ("user_id", models.BigIntegerField(null=True)),
                (
                    "username",
                    models.CharField(blank=True, default="", max_length=150, verbose_name="user"),
                ),
                ("key_id", models.BigIntegerField(null=True)),
                (
                    "key_name",
                    models.CharField(blank=True, default="", max_length=100, verbose_name="key"),
                ),
                ("project_id", models.BigIntegerField(null=True)),
                (
                    "project_name",
                    models.CharField(
                        blank=True, default="", max_length=100, verbose_name="project"
                    ),
                ),
                ("organization_id", models.BigIntegerField(null=True)),
                (
                    "organization_name",
                    models.CharField(
                        blank=True, default="", max_length=100, verbose_name="organisation"
                    ),
                ),
                ("model", models.CharField(max_length=255)),
            ],
            options={"ordering": ["-created_at", "-id"]},
        ),
        migrations.AddIndex(
            model_name="user",
            index=models.Index(
                condition=models.Q(("is_superuser", True)), fields=["id"], name="superuser"
            ),
        ),
        migrations.AlterField(
            model_name="project",
            name="capture_hours",
            field=models.PositiveSmallIntegerField(
                default=0,
                help_text="How long prompts and answers are kept, encrypted, for admins of the organisation: up to 720 hours. 0 keeps nothing and deletes what was kept.",
                validators=[django.core.validators.MaxValueValidator(720)],
                verbose_name="prompt logging: retention (hours)",
            ),
        ),
        migrations.AlterField(
            model_name="project",
            name="capture_redactions",
            field=models.JSONField(
                blank=True,
                default=list,
                help_text="What is redacted from kept texts: email, card, phone, ip or secret, or any literal words. These words are stored and logged in plain text.",
                validators=[vinery_accounts.base.redaction.check_redactions],
                verbose_name="redaction rules",
            ),
        ),
        migrations.AlterField(
            model_name="limit",
            name="window",
            field=models.CharField(
                choices=[
                    ("minute", "per minute"),
                    ("hour", "per hour"),
                    ("day", "per day"),
                    ("week", "per week"),
                    ("month", "per month"),
                    ("none", "no window"),
                ],
                max_length=8,
            ),
        ),
        migrations.AddField(
            model_name="usagerecord",
            name="decode_ms",
            field=models.FloatField(help_text="Processor time that decoded the media.", null=True),
        ),
        migrations.AddField(
            model_name="usagerecord",
            name="encode_ms",
            field=models.FloatField(help_text="The engine's time to encode the media.", null=True),
        ),
        migrations.AddField(
            model_name="usagerecord",
            name="fetch_ms",
            field=models.FloatField(
                help_text="Until all media by URL or path were here.", null=True
            ),
        ),
        migrations.AddField(
            model_name="usagerecord",
            name="num_media",
            field=models.PositiveIntegerField(
                default=0,
                help_text="Pictures, videos and files of the request.",
                verbose_name="media",
            ),
        ),
        migrations.AddField(
            model_name="usagerecord",
            name="num_media_bytes",
            field=models.PositiveBigIntegerField(
                default=0, help_text="The size of these files.", verbose_name="media bytes"
            ),
        ),
        migrations.AddField(
            model_name="usagerecord",
            name="num_media_pixels",
            field=models.PositiveBigIntegerField(
                default=0,
                help_text="What the model saw of all pictures, pages and frames.",
                verbose_name="media pixels",
            ),
        ),
        migrations.CreateModel(
            name="Invitation",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "username",
                    models.CharField(
                        max_length=150, validators=[vinery_accounts.base.names.check_name]
                    ),
                ),
                (
                    "role",
                    models.CharField(
                        choices=[
                            ("owner", "owner"),
                            ("admin", "admin"),
                            ("member", "member"),
                            ("viewer", "viewer"),
                        ],
                        default="member",
                        max_length=10,
                    ),
                ),
                ("invited_by", models.CharField(default="", editable=False, max_length=150)),
                ("created_at", models.DateTimeField(auto_now_add=True, verbose_name="created")),
                (
                    "expires_at",
                    models.DateTimeField(db_index=True, editable=False, verbose_name="expires"),
                ),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="invitations",
                        to="accounts.organization",
                        verbose_name="organisation",
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="invitations",
                        to="accounts.project",
                    ),
                ),
            ],
            options={
                "ordering": ["username", "id"],
                "indexes": [models.Index(fields=["username"], name="invitation_by_name")],
            },
        ),
        migrations.AddField(
            model_name="usagerecord",
            name="error_message",
            field=models.CharField(blank=True, default="", max_length=500),
        ),
        migrations.AddField(
            model_name="usagerecord",
            name="error_param",
            field=models.CharField(
                blank=True, default="", max_length=200, verbose_name="error field"
            ),
        ),
        migrations.AlterField(
            model_name="limit",
            name="metric",
            field=models.CharField(
                choices=[
                    ("requests", "requests"),
                    ("tokens", "tokens"),
                    ("input_tokens", "input tokens"),
                    ("output_tokens", "output tokens"),
                    ("concurrency", "concurrent answers"),
                    ("weighted_tokens", "weighted tokens"),
                ],
                max_length=16,
            ),
        ),
        migrations.AddField(
            model_name="project",
            name="hashes_end_users",
            field=models.BooleanField(
                default=False,
                help_text="Usage records have a hash instead of what clients send as `user`.",
                verbose_name="hash end users",
            ),
        ),
        migrations.AddField(
            model_name="usagerecord",
            name="end_user",
            field=models.CharField(
                blank=True,
                default="",
                help_text="The client's own user.",
                max_length=64,
                verbose_name="end user",
            ),
        ),
        migrations.AddField(
            model_name="usagerecord",
            name="mm_hashes",
            field=models.TextField(
                blank=True,
                default="",
                help_text="The SHA-256 of each, if the client sent them to be checked.",
                verbose_name="media hashes",
            ),
        ),
        migrations.AddField(
            model_name="usagerecord",
            name="num_video_tokens",
            field=models.PositiveIntegerField(
                default=0, help_text="Part of the prompt tokens.", verbose_name="video tokens"
            ),
        ),
        migrations.AddIndex(
            model_name="usagerecord",
            index=models.Index(
                condition=models.Q(("end_user", ""), _negated=True),
                fields=["end_user", "created_at"],
                name="usage_by_end_user",
            ),
        ),
        migrations.AlterField(
            model_name="limit",
            name="scope",
            field=models.CharField(
                choices=[
                    ("platform", "the whole platform"),
                    ("organization", "an organisation"),
                    ("project", "a project"),
                    ("end_user", "each end user of a project"),
                    ("user", "a user"),
                    ("key", "a key"),
                    ("model", "a model"),
                ],
                max_length=16,
            ),
        ),
        *(
            migrations.AddField(name.lower(), column, models.BigIntegerField(default=0))
            for name in _UNITS_S
            for column in _MEDIA + _CAUSES
        ),
        migrations.RunPython(withdraw_confirmations, migrations.RunPython.noop),
        migrations.RunPython(count_causes, migrations.RunPython.noop),
    ]
