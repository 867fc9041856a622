from django.core.validators import MinValueValidator
from django.db import migrations, models


def _weight(name: str, words: str) -> migrations.AlterField:
    return migrations.AlterField(
        model_name="modelweight",
        name=name,
        field=models.FloatField(
            words,
            default=1,
            help_text="Of a token; with a currency, the price of a million. 0 to 100,000, in steps "
            "of 0.001.",
            validators=[MinValueValidator(0)],
        ),
    )


class Migration(migrations.Migration):
    dependencies = [("accounts", "0007_reports_by_mail")]

    operations = [
        migrations.AddField(
            model_name="savedview",
            name="mail_error",
            field=models.CharField(blank=True, db_default="", editable=False, max_length=100),
        ),
        _weight("cached", "cached input"),
        _weight("image", "image input"),
        _weight("output", "output"),
        _weight("uncached", "input"),
    ]
