from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0013_stored_lists")]

    operations = [
        migrations.AddField(
            model_name="usagerecord",
            name="parameters",
            field=models.TextField(
                null=True, help_text="What the client sent, as a JSON object without texts."
            ),
        )
    ]
