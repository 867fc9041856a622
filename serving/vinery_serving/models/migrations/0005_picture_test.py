"""What a vision model made of known pictures."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("serving", "0004_settings_digest"),
    ]

    operations = [
        migrations.AddField(
            model_name="enginestatus",
            name="picture_test",
            field=models.TextField(
                blank=True,
                help_text="What a vision model made of known pictures when it was loaded on its "
                "device.",
            ),
        ),
    ]
