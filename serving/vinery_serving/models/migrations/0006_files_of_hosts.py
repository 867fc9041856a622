"""Hosts say which folders of models others can fetch from them."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("serving", "0005_hosts"),
    ]

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
    ]
