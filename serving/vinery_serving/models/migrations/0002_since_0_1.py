"""What has changed since release 0.1 until the picture test of each load went.

A database that has the migrations which this one `replaces` has it.
"""

from typing import Any

import django.core.validators
import django.db.models.deletion
from django.db import migrations, models

from vinery_serving.models.folder_options import find

_REPLACED = (
    "0002_failures_in_row",
    "0003_load_attempts",
    "0004_settings_digest",
    "0005_picture_test",
    "0006_picture_verdicts",
    "0007_model_aliases",
    "0008_jobs_and_history",
    "0009_speed_results",
    "0010_sources",
    "0011_task",
    "0012_memory",
    "0013_projects",
    "0014_former_engines",
    "0015_replicas",
    "0016_alias_patterns",
)


def read_tasks(apps: Any, schema_editor: Any) -> None:
    """Set what each model does, which its folder shows. A model whose folder is missing stays a chat model."""
    for model in apps.get_model("serving", "ServedModel").objects.all():
        task = find(model.folder, {}).task
        if task is not None and task != model.task:
            model.task = str(task)
            model.save(update_fields=["task"])


class Migration(migrations.Migration):
    replaces = [("serving", name) for name in _REPLACED]
    dependencies = [("serving", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="enginestatus",
            name="max_attempts",
            field=models.PositiveIntegerField(
                default=0,
                help_text="After how many failed attempts it is no longer tried; 0: none failed.",
            ),
        ),
        migrations.AddField(
            model_name="enginestatus",
            name="max_context",
            field=models.PositiveIntegerField(
                default=0, help_text="Tokens of prompt and output together; 0: unknown."
            ),
        ),
        migrations.AddField(
            model_name="enginestatus",
            name="next_attempt_at",
            field=models.DateTimeField(blank=True, help_text="When it is tried again.", null=True),
        ),
        migrations.AddField(
            model_name="enginestatus",
            name="num_attempts",
            field=models.PositiveIntegerField(
                default=0, help_text="How many attempts to load it have failed since it was ready."
            ),
        ),
        migrations.AddField(
            model_name="servedmodel",
            name="retried_at",
            field=models.DateTimeField(
                blank=True,
                editable=False,
                help_text="When an administrator last asked to load it again after a failure.",
                null=True,
            ),
        ),
        migrations.AlterField(
            model_name="enginestatus",
            name="last_error",
            field=models.TextField(
                blank=True,
                help_text="What happened and what to do; the original error stands below, after a blank line.",
            ),
        ),
        migrations.AlterField(
            model_name="servedmodel",
            name="name",
            field=models.CharField(
                error_messages={"unique": "Another model is served under this name."},
                help_text="The name that clients send as `model`.",
                max_length=128,
                unique=True,
                validators=[
                    django.core.validators.RegexValidator(
                        "^[A-Za-z0-9][A-Za-z0-9._:/-]*\\Z",
                        "Use letters, digits and . _ : / - only, beginning with a letter or digit.",
                    )
                ],
            ),
        ),
        migrations.AddField(
            model_name="enginestatus",
            name="settings_digest",
            field=models.CharField(
                blank=True, help_text="Of the settings that this report is about.", max_length=64
            ),
        ),
        migrations.AddField(
            model_name="enginestatus",
            name="picture_test_device",
            field=models.CharField(
                blank=True, help_text="The device on which it saw them.", max_length=64
            ),
        ),
        migrations.AddField(
            model_name="enginestatus",
            name="picture_tested_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="enginestatus",
            name="picture_verdict",
            field=models.CharField(
                blank=True,
                choices=[
                    ("passed", "Passed"),
                    ("alike", "Cannot distinguish pictures"),
                    ("failed", "Failed"),
                    ("no_vision", "No vision"),
                    ("unfinished", "Not tested"),
                ],
                help_text="What a vision model made of known pictures; empty: it takes text only.",
                max_length=16,
            ),
        ),
        migrations.AddField(
            model_name="servedmodel",
            name="tested_at",
            field=models.DateTimeField(
                blank=True,
                editable=False,
                help_text="When an administrator last asked to show it known pictures.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="enginestatus",
            name="picture_test",
            field=models.TextField(blank=True, help_text="The same as a sentence."),
        ),
        migrations.AlterField(
            model_name="servedmodel",
            name="folder",
            field=models.CharField(
                blank=True,
                help_text="Absolute path of the folder that holds openvino_model.xml.",
                max_length=1024,
            ),
        ),
        migrations.CreateModel(
            name="ModelEvent",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("at", models.DateTimeField(auto_now_add=True)),
                (
                    "state",
                    models.CharField(
                        help_text="The state that the model had from then on.", max_length=16
                    ),
                ),
                (
                    "reason",
                    models.TextField(
                        blank=True, help_text="Why it changed; empty: as it was asked to."
                    ),
                ),
                (
                    "model",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="events",
                        to="serving.servedmodel",
                    ),
                ),
            ],
            options={"ordering": ["-id"]},
        ),
        migrations.CreateModel(
            name="ModelJob",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("pull", "pull"),
                            ("convert", "convert"),
                            ("bench", "bench"),
                            ("tune", "tune"),
                        ],
                        max_length=16,
                    ),
                ),
                (
                    "parameters",
                    models.JSONField(default=dict, help_text="What its kind needs. No secrets."),
                ),
                (
                    "asked",
                    models.CharField(
                        choices=[("run", "run"), ("pause", "pause"), ("cancel", "cancel")],
                        default="run",
                        max_length=8,
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("waiting", "waiting"),
                            ("running", "running"),
                            ("paused", "paused"),
                            ("done", "done"),
                            ("failed", "failed"),
                            ("cancelled", "cancelled"),
                        ],
                        default="waiting",
                        max_length=16,
                    ),
                ),
                (
                    "stage",
                    models.CharField(
                        blank=True,
                        help_text="What it does now, in words for administrators.",
                        max_length=200,
                    ),
                ),
                ("done_bytes", models.BigIntegerField(default=0)),
                (
                    "total_bytes",
                    models.BigIntegerField(blank=True, help_text="null: unknown.", null=True),
                ),
                ("bytes_per_s", models.FloatField(default=0.0, help_text="Over the last seconds.")),
                ("result", models.JSONField(blank=True, default=dict)),
                ("error", models.TextField(blank=True, help_text="What happened and what to do.")),
                (
                    "num_attempts",
                    models.PositiveIntegerField(
                        default=0,
                        help_text="How often it was begun since an administrator asked for it.",
                    ),
                ),
                ("next_attempt_at", models.DateTimeField(blank=True, null=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                (
                    "model",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="jobs",
                        to="serving.servedmodel",
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("state__in", ("waiting", "running", "paused"))),
                        fields=("model", "kind"),
                        name="one_unfinished_job",
                        violation_error_message="The model has a job of this kind, which has not ended.",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="SpeedResult",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("measured_at", models.DateTimeField(auto_now_add=True)),
                ("folder", models.CharField(max_length=1024)),
                ("device", models.CharField(max_length=64)),
                (
                    "device_name",
                    models.CharField(blank=True, help_text="Empty: unknown.", max_length=256),
                ),
                (
                    "options",
                    models.JSONField(default=dict, help_text="The engine options at that time."),
                ),
                (
                    "versions",
                    models.JSONField(
                        default=dict, help_text="Of Vinery, OpenVINO and OpenVINO GenAI."
                    ),
                ),
                ("num_prompt_tokens", models.PositiveIntegerField(help_text="Of each request.")),
                ("num_output_tokens", models.PositiveIntegerField(help_text="Of each request.")),
                (
                    "num_other_tokens",
                    models.PositiveBigIntegerField(
                        help_text="That clients used meanwhile: they made the measured requests slower."
                    ),
                ),
                (
                    "points",
                    models.JSONField(
                        help_text="For each number of streams: prompt_tokens_per_s and output_tokens_per_s of all streams together, the median first_token_s, and memory_bytes of the engine."
                    ),
                ),
                (
                    "model",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="speeds",
                        to="serving.servedmodel",
                    ),
                ),
            ],
            options={"ordering": ["-id"]},
        ),
        migrations.AddField(
            model_name="servedmodel",
            name="source",
            field=models.JSONField(
                blank=True,
                default=dict,
                editable=False,
                help_text="Where its files were pulled from: hub, repository, revision, commit and files with their sizes; empty: an administrator named the folder.",
            ),
        ),
        migrations.AddField(
            model_name="servedmodel",
            name="task",
            field=models.CharField(
                choices=[
                    ("chat", "chat"),
                    ("completion", "completion"),
                    ("vision", "vision"),
                    ("embeddings", "embeddings"),
                    ("rerank", "rerank"),
                ],
                default="chat",
                editable=False,
                help_text="What the model in the folder does, as its files have it.",
                max_length=16,
            ),
        ),
        migrations.AddField(
            model_name="enginestatus",
            name="num_failures_in_row",
            field=models.PositiveIntegerField(
                default=0, help_text="How often the engine has failed since it was ready."
            ),
        ),
        migrations.AddField(
            model_name="enginestatus",
            name="loaded_bytes",
            field=models.PositiveBigIntegerField(
                blank=True,
                help_text="Measured memory of its process after it had loaded.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="enginestatus",
            name="needed_bytes",
            field=models.PositiveBigIntegerField(
                blank=True, help_text="Memory that it is expected to need.", null=True
            ),
        ),
        migrations.AddField(
            model_name="enginestatus",
            name="num_waiting_to_load",
            field=models.PositiveIntegerField(
                default=0, help_text="Requests that wait until it is loaded."
            ),
        ),
        migrations.AddField(
            model_name="enginestatus",
            name="peak_bytes",
            field=models.PositiveBigIntegerField(
                blank=True, help_text="The most that was measured since.", null=True
            ),
        ),
        migrations.AddField(
            model_name="enginestatus",
            name="waiting_since",
            field=models.DateTimeField(
                blank=True, help_text="When the oldest of them came.", null=True
            ),
        ),
        migrations.AddField(
            model_name="servedmodel",
            name="idle_s",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="After so many seconds without a request its engine ends, until the next request comes; 0: it stays. Empty: as VINERY_MODEL_IDLE_S.",
                null=True,
                validators=[django.core.validators.MaxValueValidator(31622400)],
                verbose_name="idle time",
            ),
        ),
        migrations.AddField(
            model_name="servedmodel",
            name="is_pinned",
            field=models.BooleanField(
                default=False,
                help_text="It stays awake: it does not sleep when it is idle, nor to make room for others.",
                verbose_name="pinned",
            ),
        ),
        migrations.AlterField(
            model_name="enginestatus",
            name="state",
            field=models.CharField(
                choices=[
                    ("unloaded", "Unloaded"),
                    ("loading", "Loading"),
                    ("ready", "Ready"),
                    ("asleep", "Asleep"),
                    ("retrying", "Retrying"),
                    ("failed", "Failed"),
                ],
                default="unloaded",
                max_length=16,
            ),
        ),
        migrations.AddField(
            model_name="servedmodel",
            name="project_ids",
            field=models.JSONField(
                blank=True,
                default=list,
                help_text="The ids of the projects whose keys see and use it; empty: all keys.",
                verbose_name="projects",
            ),
        ),
        migrations.AddField(
            model_name="enginestatus",
            name="has_former",
            field=models.BooleanField(
                default=False,
                help_text="Whether an engine with former settings serves until this one does.",
            ),
        ),
        migrations.AddField(
            model_name="enginestatus",
            name="replicas",
            field=models.JSONField(
                blank=True,
                default=list,
                help_text="The engines of a model with several: number, device, state, process, last error and restarts of each.",
            ),
        ),
        migrations.AddField(
            model_name="servedmodel",
            name="num_replicas",
            field=models.PositiveSmallIntegerField(
                blank=True,
                default=1,
                help_text="How many engines serve it. Each has its own copy of what it needs in memory.",
                validators=[
                    django.core.validators.MinValueValidator(1),
                    django.core.validators.MaxValueValidator(64),
                ],
                verbose_name="replicas",
            ),
        ),
        migrations.AddField(
            model_name="servedmodel",
            name="replica_devices",
            field=models.JSONField(
                blank=True,
                default=list,
                help_text="The devices of the replicas in turn, such as ['GPU.0', 'GPU.1']. Empty: all on the device of the model.",
                verbose_name="devices of replicas",
            ),
        ),
        migrations.CreateModel(
            name="ModelAlias",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "name",
                    models.CharField(
                        error_messages={"unique": "There is an alias of this name already."},
                        help_text="The name that clients send as `model`; claude-* is each name that begins so.",
                        max_length=128,
                        unique=True,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[A-Za-z0-9][A-Za-z0-9._:/-]*\\*?\\Z",
                                "Use letters, digits and . _ : / - only, beginning with a letter or digit. The last character may be a *, for all names that begin so.",
                            )
                        ],
                    ),
                ),
                (
                    "targets",
                    models.JSONField(
                        help_text='The models by their weights, such as {"qwen-a": 90, "qwen-b": 10}: each request gets one of them by chance, those with a weight of 0 only if no other can answer.'
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
            ],
            options={"verbose_name_plural": "model aliases", "ordering": ("name",)},
        ),
        migrations.RunPython(read_tasks, migrations.RunPython.noop),
    ]
