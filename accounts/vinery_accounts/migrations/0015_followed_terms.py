from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0014_parameters")]

    operations = [
        migrations.AddField(
            model_name="storedbytes",
            name="days",
            field=models.PositiveSmallIntegerField(
                null=True, help_text="Empty: something was stored for longer since."
            ),
        ),
        migrations.AddField(
            model_name="storedbytes",
            name="is_followed",
            field=models.BooleanField(default=False, db_default=False),
        ),
    ]
