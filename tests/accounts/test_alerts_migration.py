"""Sums from before requests were counted apart tell how many an engine took."""

from __future__ import annotations

from importlib import import_module

import pytest
from django.apps import apps
from usage_builders import settlement

from accounts.models import DayRollup, HourRollup, MinuteRollup
from accounts.usage.store import store_settlements


@pytest.mark.django_db
def test_requests_with_a_prompt_were_taken() -> None:
    nothing = {"num_prompt_tokens": 0, "num_cached_tokens": 0, "num_output_tokens": 0}
    store_settlements([settlement("r1"), settlement("r2")])
    tables = (MinuteRollup, HourRollup, DayRollup)
    for table in tables:
        table.objects.update(num_taken=0)

    import_module("accounts.migrations.0006_alerts").count_taken(apps, None)

    for table in tables:
        assert set(table.objects.values_list("num_taken", flat=True)) == {2}
    store_settlements([settlement("r3", num_reasoning_tokens=0, **nothing)])
    assert set(DayRollup.objects.values_list("num_requests", "num_taken")) == {(3, 2)}
