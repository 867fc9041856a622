"""Hosts say which folders of models others can fetch from them. What lies in the folder of the
models of a home has no absolute path any more: the homes of hosts differ."""

from typing import Any

from django.conf import settings
from django.db import migrations, models

import vinery_serving.models.models


def store_paths_within(apps: Any, _: Any) -> None:
    root = f"{settings.VINERY_PULLED_DIR}/"
    models_ = apps.get_model("serving", "ServedModel").objects.filter(folder__startswith=root)
    for pk, folder in models_.values_list("pk", "folder"):
        models_.filter(pk=pk).update(folder=folder.removeprefix(root))


def store_absolute_paths(apps: Any, _: Any) -> None:
    models_ = apps.get_model("serving", "ServedModel").objects
    for pk, folder in models_.exclude(folder="").values_list("pk", "folder"):
        models_.filter(pk=pk).update(folder=str(settings.VINERY_PULLED_DIR / folder))


class Migration(migrations.Migration):
    dependencies = [("serving", "0005_hosts")]

    operations = [
        migrations.AddField(
            model_name="host",
            name="digests",
            field=models.JSONField(
                blank=True,
                db_default={},
                default=dict,
                help_text=(
                    "The folders of models that others can fetch: the SHA-256 and the size of the "
                    "list of their files."
                ),
            ),
        ),
        migrations.AlterField(
            model_name="host",
            name="lacks",
            field=models.JSONField(
                blank=True,
                default=list,
                help_text="The folders of models that are not there, and that it cannot fetch.",
            ),
        ),
        migrations.AlterField(
            model_name="modeljob",
            name="kind",
            field=models.CharField(
                choices=[
                    ("pull", "pull"),
                    ("convert", "convert"),
                    ("bench", "bench"),
                    ("tune", "tune"),
                    ("fetch", "fetch"),
                ],
                max_length=16,
            ),
        ),
        migrations.RemoveConstraint(model_name="modeljob", name="one_unfinished_job"),
        migrations.AddConstraint(
            model_name="modeljob",
            constraint=models.UniqueConstraint(
                condition=models.Q(
                    ("state__in", ("waiting", "running", "paused")),
                    models.Q(("kind", "fetch"), _negated=True),
                ),
                fields=("model", "kind"),
                name="one_unfinished_job",
                violation_error_message=("The model has a job of this kind, which has not ended."),
            ),
        ),
        migrations.RunPython(store_paths_within, store_absolute_paths),
        migrations.AlterField(
            model_name="servedmodel",
            name="folder",
            field=vinery_serving.models.models.FolderField(
                blank=True,
                help_text="Absolute path of the folder that holds openvino_model.xml.",
                max_length=1024,
            ),
        ),
    ]
