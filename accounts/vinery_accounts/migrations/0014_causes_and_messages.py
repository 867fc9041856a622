"""Rollups have errors by cause, and the latency of whole answers alone: also those of the records
that are kept. Usage records have the message and the field of an error."""

from collections import Counter, defaultdict
from typing import Any

from django.db import migrations, models
from django.db.models import F, Q

from vinery_accounts.usage import histogram
from vinery_accounts.usage.entries import Outcome
from vinery_accounts.usage.histogram import Latency
from vinery_accounts.usage.rollups import RollupDimensions, causes_of, slice_of

_COLUMNS = ("num_limited", "num_client_errors", "num_server_errors", "num_cut_short")
_UNITS_S = {"MinuteRollup": 60, "HourRollup": 3600, "DayRollup": 86_400}


def count_causes(apps: Any, schema_editor: Any) -> None:
    """Change the rollups of each record that has an error, or whose answer is not whole."""
    # By unit, start and digest: what is added to the columns, and the durations by bucket.
    sums: defaultdict[tuple[str, int, str], Counter[str]] = defaultdict(Counter)
    durations: defaultdict[tuple[str, int, str], Counter[int]] = defaultdict(Counter)
    is_meant = ~Q(outcome=Outcome.OK.value) | Q(finish_reason="quota_exceeded")
    records = apps.get_model("accounts", "UsageRecord").objects.filter(is_meant)
    for row in records.order_by("id").iterator(chunk_size=1000):
        outcome, at_s = Outcome(row.outcome), int(row.created_at.timestamp())
        causes = causes_of(outcome, row.http_status, row.finish_reason)
        added = Counter(dict(zip(_COLUMNS, map(int, causes), strict=True)))
        for dimensions in RollupDimensions:
            digest = slice_of(row).at(dimensions).digest
            for name, unit_s in _UNITS_S.items():
                key = name, at_s // unit_s * unit_s, digest
                sums[key].update(added)
                if row.total_ms is not None and outcome is not Outcome.OK:
                    bucket = histogram.bucket_index_of(Latency.TOTAL, row.total_ms)
                    durations[key][bucket] += 1
    for (name, start_s, digest), added in sums.items():
        rollups = apps.get_model("accounts", name).objects
        for rollup in rollups.filter(start_s=start_s, slice__digest=digest):
            counts = Counter(histogram.decode(bytes(rollup.histograms)))
            rest = counts - durations[name, start_s, digest]
            rollups.filter(pk=rollup.pk).update(
                histograms=histogram.encode(rest),
                **{column: F(column) + number for column, number in added.items()},
            )


class Migration(migrations.Migration):
    dependencies = [("accounts", "0013_media_in_rollups")]

    operations = [
        migrations.AddField(
            "usagerecord",
            "error_message",
            models.CharField(blank=True, default="", max_length=500),
        ),
        migrations.AddField(
            "usagerecord",
            "error_param",
            models.CharField("error field", blank=True, default="", max_length=200),
        ),
        *(
            migrations.AddField(name.lower(), column, models.BigIntegerField(default=0))
            for name in _UNITS_S
            for column in _COLUMNS
        ),
        migrations.RunPython(count_causes, migrations.RunPython.noop),
    ]
