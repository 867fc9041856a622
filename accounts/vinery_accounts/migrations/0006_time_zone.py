from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0005_currency")]

    operations = [
        migrations.AddField(
            model_name="user",
            name="time_zone",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="Of the times on the console's pages; empty: that of the browser.",
                max_length=64,
            ),
        )
    ]
