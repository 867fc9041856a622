"""The end of an archive's URL, from ? on, is kept encrypted, and only until the job ends."""

from typing import Any

from django.db import migrations, models

from vinery_accounts.base.encryption import cipher

PURPOSE = b"vinery jobs"
UNFINISHED = ("waiting", "running", "paused")


def hide_secrets(apps: Any, _: Any) -> None:
    jobs = apps.get_model("serving", "ModelJob").objects.filter(kind="pull")
    for job in jobs.filter(parameters__kind="archive").iterator():
        url, mark, query = job.parameters["url"].partition("#")[0].partition("?")
        if not query:
            continue
        job.parameters = {**job.parameters, "url": url, "is_signed": True}
        if job.state in UNFINISHED:
            job.secret = cipher(PURPOSE).encrypt((mark + query).encode()).decode()
        job.save(update_fields=["parameters", "secret"])


class Migration(migrations.Migration):
    dependencies = [("serving", "0003_picture_test_goes")]

    operations = [
        migrations.AddField(
            model_name="modeljob",
            name="secret",
            field=models.TextField(
                blank=True,
                db_default="",
                default="",
                editable=False,
                help_text=(
                    "The end of the URL from ? on, encrypted; empty: none, or the job has ended."
                ),
            ),
        ),
        migrations.RunPython(hide_secrets, migrations.RunPython.noop),
    ]
