import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0004_saved_views")]

    operations = [
        migrations.CreateModel(
            name="Currency",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("updated_at", models.DateTimeField(auto_now=True, db_index=True)),
                (
                    "code",
                    models.CharField(
                        help_text="Three capital letters, such as EUR.",
                        max_length=3,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[A-Z]{3}$", "Give three capital letters, such as EUR."
                            )
                        ],
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True, verbose_name="since")),
            ],
            options={"verbose_name_plural": "currencies"},
        ),
        migrations.AddField(
            model_name="dayrollup", name="cost", field=models.FloatField(db_default=0.0, default=0)
        ),
        migrations.AddField(
            model_name="hourrollup", name="cost", field=models.FloatField(db_default=0.0, default=0)
        ),
        migrations.AddField(
            model_name="minuterollup",
            name="cost",
            field=models.FloatField(db_default=0.0, default=0),
        ),
        migrations.AddField(
            model_name="usagerecord",
            name="cost",
            field=models.FloatField(
                db_default=0.0,
                default=0,
                help_text="By the prices then, in millionths of the currency.",
            ),
        ),
        migrations.AlterField(
            model_name="limit",
            name="metric",
            field=models.CharField(
                choices=[
                    ("requests", "requests"),
                    ("tokens", "tokens"),
                    ("input_tokens", "input tokens"),
                    ("output_tokens", "output tokens"),
                    ("concurrency", "concurrent answers"),
                    ("weighted_tokens", "weighted tokens"),
                    ("cost", "cost"),
                ],
                max_length=16,
            ),
        ),
        *(
            migrations.AlterField(
                model_name="modelweight",
                name=name,
                field=models.FloatField(
                    default=1,
                    help_text=(
                        "Of a token; with a currency, the price of a million. 0 to 1000, in steps "
                        "of 0.001."
                    ),
                    validators=[django.core.validators.MinValueValidator(0)],
                    verbose_name=title,
                ),
            )
            for name, title in (
                ("uncached", "input"),
                ("cached", "cached input"),
                ("output", "output"),
                ("image", "image input"),
            )
        ),
    ]
