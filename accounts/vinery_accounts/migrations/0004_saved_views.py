import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import vinery_accounts.base.names


class Migration(migrations.Migration):
    dependencies = [("accounts", "0003_reminders_and_energy_go")]

    operations = [
        migrations.CreateModel(
            name="SavedView",
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
                        max_length=60, validators=[vinery_accounts.base.names.check_name]
                    ),
                ),
                (
                    "page",
                    models.CharField(
                        help_text="The name of its URL, such as requests.", max_length=32
                    ),
                ),
                (
                    "query",
                    models.CharField(
                        blank=True, help_text="Without the question mark.", max_length=2000
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True, verbose_name="created")),
            ],
            options={"ordering": ["name", "id"]},
        ),
        migrations.AddIndex(
            model_name="usagerecord",
            index=models.Index(
                condition=models.Q(("client_request_id", ""), _negated=True),
                fields=["client_request_id", "created_at"],
                name="usage_by_client_id",
            ),
        ),
        migrations.AddField(
            model_name="savedview",
            name="user",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="saved_views",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddConstraint(
            model_name="savedview",
            constraint=models.UniqueConstraint(
                fields=("user", "page", "name"), name="one_view_of_a_name"
            ),
        ),
    ]
