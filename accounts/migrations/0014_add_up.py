"""The roll-ups begin with the rows that are there.

What adds them up is the code of today, which knows the columns of today: whoever adds one to
the roll-ups moves this behind it, and leaves nothing here.
"""

from django.db import migrations

from accounts.usage.rollups import add_rows

_NUM_ROWS = 5000


def add_up(apps, schema_editor):
    """Give the roll-ups what the rows say so far, unless they have been given it before."""
    if apps.get_model("accounts", "DayRollup").objects.exists():
        return
    rows = apps.get_model("accounts", "UsageRecord").objects.order_by("id")
    last_id = 0
    while some := list(rows.filter(id__gt=last_id)[:_NUM_ROWS]):
        add_rows(some)
        last_id = some[-1].id


class Migration(migrations.Migration):
    dependencies = [("accounts", "0013_captures")]
    operations = [migrations.RunPython(add_up, migrations.RunPython.noop)]
