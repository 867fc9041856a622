from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0007_reports_by_mail"),
    ]

    operations = [
        migrations.AddField(
            model_name="savedview",
            name="mail_error",
            field=models.CharField(blank=True, db_default="", editable=False, max_length=100),
        ),
    ]
