from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0006_time_zone")]

    operations = [
        migrations.AddField(
            model_name="savedview",
            name="mail_every",
            field=models.CharField(
                blank=True,
                choices=[("week", "weekly"), ("month", "monthly")],
                db_default="",
                max_length=5,
            ),
        ),
        migrations.AddField(
            model_name="savedview",
            name="mailed_at",
            field=models.DateTimeField(editable=False, help_text="Or when chosen.", null=True),
        ),
    ]
