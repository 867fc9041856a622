import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0010_stored_care")]

    operations = [
        migrations.CreateModel(
            name="SpanRollup",
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
                (
                    "num_taken",
                    models.BigIntegerField(
                        default=0,
                        help_text="Requests whose prompt an engine accepted: limits count these.",
                    ),
                ),
                ("num_limited", models.BigIntegerField(default=0)),
                ("num_client_errors", models.BigIntegerField(default=0)),
                ("num_server_errors", models.BigIntegerField(default=0)),
                ("num_cut_short", models.BigIntegerField(default=0)),
                ("num_prompt_tokens", models.BigIntegerField(default=0)),
                ("num_cached_tokens", models.BigIntegerField(default=0)),
                ("num_image_tokens", models.BigIntegerField(default=0)),
                ("num_video_tokens", models.BigIntegerField(default=0)),
                ("num_audio_tokens", models.BigIntegerField(default=0)),
                ("num_output_tokens", models.BigIntegerField(default=0)),
                ("num_reasoning_tokens", models.BigIntegerField(default=0)),
                ("num_media", models.BigIntegerField(default=0)),
                ("num_media_bytes", models.BigIntegerField(default=0)),
                ("num_media_pixels", models.BigIntegerField(default=0)),
                ("weighted_tokens", models.FloatField(default=0)),
                ("cost", models.FloatField(db_default=0.0, default=0)),
                (
                    "histograms",
                    models.BinaryField(default=b"", help_text="Latencies: see `usage/histogram`."),
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
                "indexes": [models.Index(fields=["slice", "start_s"], name="spanrollup_by_slice")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("start_s", "slice"), name="one_spanrollup_of_a_slice"
                    )
                ],
            },
        )
    ]
