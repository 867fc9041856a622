"""Rollups sum up the media of requests, also of those that were stored before."""

from typing import Any

from django.db import migrations, models
from django.db.models import F

from vinery_accounts.usage.rollups import RollupDimensions, slice_of

_COLUMNS = ("num_media", "num_media_bytes", "num_media_pixels")
_UNITS_S = {"MinuteRollup": 60, "HourRollup": 3600, "DayRollup": 86_400}


def add_media(apps: Any, schema_editor: Any) -> None:
    """Add the media of each stored request to its rollups, which the digests of slices name."""
    records = apps.get_model("accounts", "UsageRecord").objects.filter(num_media__gt=0)
    for row in records.order_by("id").iterator(chunk_size=1000):
        sums = {column: F(column) + getattr(row, column) for column in _COLUMNS}
        digests = [slice_of(row).at(dimensions).digest for dimensions in RollupDimensions]
        at_s = int(row.created_at.timestamp())
        for name, unit_s in _UNITS_S.items():
            rollups = apps.get_model("accounts", name).objects
            start_s = at_s // unit_s * unit_s
            rollups.filter(start_s=start_s, slice__digest__in=digests).update(**sums)


class Migration(migrations.Migration):
    dependencies = [("accounts", "0012_media_of_requests")]

    operations = [
        *(
            migrations.AddField(name.lower(), column, models.BigIntegerField(default=0))
            for name in _UNITS_S
            for column in _COLUMNS
        ),
        migrations.RunPython(add_media, migrations.RunPython.noop),
    ]
