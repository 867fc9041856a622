"""Names are looked through when they are given; nothing of the tables changes."""

from django.db import migrations, models

import accounts.models.names


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0014_add_up"),
    ]

    operations = [
        migrations.AlterField(
            model_name="apikey",
            name="name",
            field=models.CharField(max_length=100, validators=[accounts.models.names.check_name]),
        ),
        migrations.AlterField(
            model_name="organization",
            name="name",
            field=models.CharField(
                max_length=100, unique=True, validators=[accounts.models.names.check_name_of_place]
            ),
        ),
        migrations.AlterField(
            model_name="project",
            name="name",
            field=models.CharField(
                max_length=100, validators=[accounts.models.names.check_name_of_place]
            ),
        ),
        migrations.AlterField(
            model_name="user",
            name="first_name",
            field=models.CharField(
                blank=True, max_length=150, validators=[accounts.models.names.check_characters]
            ),
        ),
        migrations.AlterField(
            model_name="user",
            name="last_name",
            field=models.CharField(
                blank=True, max_length=150, validators=[accounts.models.names.check_characters]
            ),
        ),
        migrations.AlterField(
            model_name="webhook",
            name="name",
            field=models.CharField(max_length=100, validators=[accounts.models.names.check_name]),
        ),
    ]
