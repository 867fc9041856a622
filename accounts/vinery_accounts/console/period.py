"""The period of a page, from its address; by default the last day."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo

from django import forms
from django.utils import timezone

from vinery_accounts.models.limits import check_time_zone
from vinery_accounts.usage.periods import (
    MAX_POINTS,
    Granularity,
    calendar_month,
    check_moment,
    usual_granularity,
)

OWN: Final = "own"
_USUAL: Final = "24h"
_LENGTHS: Final = {
    "1h": ("Last hour", timedelta(hours=1)),
    "24h": ("Last 24 hours", timedelta(days=1)),
    "7d": ("Last 7 days", timedelta(days=7)),
    "30d": ("Last 30 days", timedelta(days=30)),
    "90d": ("Last 90 days", timedelta(days=90)),
}
_MONTHS: Final = {"month": "This month", "last-month": "Last month"}


@dataclass(frozen=True, slots=True)
class Period:
    """From `since` to before `until`. `granularity` None is derived from the length."""

    since: datetime
    until: datetime
    granularity: Granularity | None = None
    zone: tzinfo = UTC


def _moment_field(label: str) -> forms.DateTimeField:
    widget = forms.DateTimeInput({"type": "datetime-local"}, format="%Y-%m-%dT%H:%M")
    return forms.DateTimeField(
        label=label, required=False, validators=[check_moment], widget=widget
    )


class PeriodForm(forms.Form):
    """The form above every chart. An invalid period is reported at its field, and the page shows
    the last day."""

    period = forms.ChoiceField(
        choices=[
            *((name, words) for name, (words, _) in _LENGTHS.items()),
            *_MONTHS.items(),
            (OWN, "Custom range"),
        ],
        required=False,
    )
    since = _moment_field("From")
    until = _moment_field("To")
    granularity = forms.ChoiceField(
        label="Interval",
        choices=[("", "Auto"), *((each.value, f"1 {each}") for each in Granularity)],
        required=False,
    )
    zone = forms.CharField(
        label="Time zone", required=False, max_length=64, validators=[check_time_zone]
    )

    @classmethod
    def of(cls, query: Any) -> PeriodForm:
        asked = {name: query.get(name, "") for name in cls.base_fields}
        usual = OWN if asked["since"] or asked["until"] else _USUAL
        return cls(asked | {"period": asked["period"] or usual, "zone": asked["zone"] or "UTC"})

    def clean(self) -> dict[str, Any]:
        super().clean()
        values = self.cleaned_data
        values["found"] = found = self._found(values)
        if found.since >= found.until:
            raise forms.ValidationError("The period ends before it begins.")
        interval = found.granularity or usual_granularity(found.since, found.until)
        if (found.until - found.since) / interval.length > MAX_POINTS:
            raise forms.ValidationError(
                f"The interval {interval} makes more than {MAX_POINTS} columns. Choose a "
                "longer interval, or a shorter period."
            )
        return values

    @property
    def found(self) -> Period:
        if self.is_valid():
            period: Period = self.cleaned_data["found"]
            return period
        now = timezone.now()
        return Period(now - timedelta(days=1), now)

    @staticmethod
    def _found(values: dict[str, Any]) -> Period:
        zone = ZoneInfo(values.get("zone") or "UTC")
        granularity = Granularity(values["granularity"]) if values.get("granularity") else None
        name = values.get("period") or _USUAL
        now = timezone.now()
        if name in _MONTHS:
            months = calendar_month(now.astimezone(zone), is_last=name == "last-month")
            return Period(*months, granularity, zone)
        if name != OWN:
            return Period(now - _LENGTHS[name][1], now, granularity, zone)
        until = _in_zone(values.get("until"), zone) or now
        since = _in_zone(values.get("since"), zone) or until - timedelta(days=1)
        return Period(since, until, granularity, zone)


def _in_zone(moment: datetime | None, zone: tzinfo) -> datetime | None:
    """Return the time in the zone of the form; Django reads it as UTC."""
    return moment and moment.replace(tzinfo=zone)
