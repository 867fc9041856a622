"""Usage added up by minute, hour and day."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0004_key_project"),
    ]

    operations = [
        migrations.CreateModel(
            name="RetentionCutoff",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("table", models.CharField(max_length=32, unique=True)),
                ("kept_since", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="UsageSlice",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "grain",
                    models.CharField(help_text="See `accounts.usage.dimensions`.", max_length=16),
                ),
                (
                    "digest",
                    models.CharField(help_text="Of all that follows.", max_length=32, unique=True),
                ),
                ("key_id", models.BigIntegerField(null=True)),
                ("key_name", models.CharField(max_length=100)),
                ("user_id", models.BigIntegerField(null=True)),
                ("username", models.CharField(max_length=150)),
                ("project_id", models.BigIntegerField(null=True)),
                ("project_name", models.CharField(blank=True, default="", max_length=100)),
                ("organization_id", models.BigIntegerField(null=True)),
                ("organization_name", models.CharField(blank=True, default="", max_length=100)),
                ("model", models.CharField(blank=True, max_length=255)),
                ("endpoint", models.CharField(max_length=64)),
                (
                    "outcome",
                    models.CharField(
                        choices=[
                            ("ok", "ok"),
                            ("client_gone", "client gone"),
                            ("rejected", "rejected"),
                            ("failed", "failed"),
                            ("interrupted", "interrupted"),
                        ],
                        max_length=16,
                    ),
                ),
                (
                    "status_class",
                    models.PositiveSmallIntegerField(
                        help_text="The first digit of the HTTP status; empty without an answer.",
                        null=True,
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["grain", "key_id"], name="slice_by_key"),
                    models.Index(fields=["grain", "user_id"], name="slice_by_user"),
                    models.Index(fields=["grain", "project_id"], name="slice_by_project"),
                ],
            },
        ),
        migrations.CreateModel(
            name="MinuteRollup",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("start_s", models.BigIntegerField()),
                ("num_requests", models.BigIntegerField(default=0)),
                ("num_errors", models.BigIntegerField(default=0)),
                ("num_prompt_tokens", models.BigIntegerField(default=0)),
                ("num_cached_tokens", models.BigIntegerField(default=0)),
                ("num_image_tokens", models.BigIntegerField(default=0)),
                ("num_output_tokens", models.BigIntegerField(default=0)),
                ("num_reasoning_tokens", models.BigIntegerField(default=0)),
                ("weighted_tokens", models.FloatField(default=0)),
                (
                    "histograms",
                    models.BinaryField(
                        default=b"", help_text="Latencies: see `accounts.usage.histogram`."
                    ),
                ),
                (
                    "slice",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="accounts.usageslice",
                    ),
                ),
            ],
            options={
                "abstract": False,
                "indexes": [
                    models.Index(fields=["slice", "start_s"], name="minuterollup_by_slice")
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("start_s", "slice"), name="one_minuterollup_of_a_slice"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="HourRollup",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("start_s", models.BigIntegerField()),
                ("num_requests", models.BigIntegerField(default=0)),
                ("num_errors", models.BigIntegerField(default=0)),
                ("num_prompt_tokens", models.BigIntegerField(default=0)),
                ("num_cached_tokens", models.BigIntegerField(default=0)),
                ("num_image_tokens", models.BigIntegerField(default=0)),
                ("num_output_tokens", models.BigIntegerField(default=0)),
                ("num_reasoning_tokens", models.BigIntegerField(default=0)),
                ("weighted_tokens", models.FloatField(default=0)),
                (
                    "histograms",
                    models.BinaryField(
                        default=b"", help_text="Latencies: see `accounts.usage.histogram`."
                    ),
                ),
                (
                    "slice",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="accounts.usageslice",
                    ),
                ),
            ],
            options={
                "abstract": False,
                "indexes": [models.Index(fields=["slice", "start_s"], name="hourrollup_by_slice")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("start_s", "slice"), name="one_hourrollup_of_a_slice"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="DayRollup",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("start_s", models.BigIntegerField()),
                ("num_requests", models.BigIntegerField(default=0)),
                ("num_errors", models.BigIntegerField(default=0)),
                ("num_prompt_tokens", models.BigIntegerField(default=0)),
                ("num_cached_tokens", models.BigIntegerField(default=0)),
                ("num_image_tokens", models.BigIntegerField(default=0)),
                ("num_output_tokens", models.BigIntegerField(default=0)),
                ("num_reasoning_tokens", models.BigIntegerField(default=0)),
                ("weighted_tokens", models.FloatField(default=0)),
                (
                    "histograms",
                    models.BinaryField(
                        default=b"", help_text="Latencies: see `accounts.usage.histogram`."
                    ),
                ),
                (
                    "slice",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="accounts.usageslice",
                    ),
                ),
            ],
            options={
                "abstract": False,
                "indexes": [models.Index(fields=["slice", "start_s"], name="dayrollup_by_slice")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("start_s", "slice"), name="one_dayrollup_of_a_slice"
                    )
                ],
            },
        ),
    ]
