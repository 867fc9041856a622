"""What each model does, read from its folder."""

from pathlib import Path
from typing import Any

from django.db import migrations, models

from vinery_serving.models.folder_options import UnusableModel, read_task


def read_tasks(apps: Any, schema_editor: Any) -> None:
    """A model whose folder is missing stays a chat model."""
    for model in apps.get_model("serving", "ServedModel").objects.all():
        try:
            task = read_task(Path(model.folder))
        except UnusableModel:
            continue
        if task is not None and task != model.task:
            model.task = str(task)
            model.save(update_fields=["task"])


class Migration(migrations.Migration):
    dependencies = [
        ("serving", "0010_sources"),
    ]

    operations = [
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
        migrations.RunPython(read_tasks, migrations.RunPython.noop),
    ]
