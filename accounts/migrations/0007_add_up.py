"""Nothing any more: `0014_add_up` does it, when all columns are there."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("accounts", "0006_alerts")]
    operations = []
