"""Paths that options name have no absolute path any more in the folder of the models of a home, from
the next change of the options on."""

from django.db import migrations

import vinery_serving.models.models


class Migration(migrations.Migration):
    dependencies = [("serving", "0006_files_of_hosts")]

    operations = [
        migrations.AlterField(
            model_name="servedmodel",
            name="options",
            field=vinery_serving.models.models.OptionsField(
                blank=True, default=dict, help_text="Engine options, such as {'max_running': 16}."
            ),
        )
    ]
