"""Alerts and reminders as e-mails, in plain text."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from django.conf import settings
from django.core.mail import send_mail

from accounts.base.limit_table import Metric
from accounts.models import Alert, KeyEvent, KeyReminder, User

_ADVICE: Final = {
    KeyEvent.EXPIRES: "What calls with it is refused from then on, and what it is running ends. "
    "Rotate it, make a new one, or move its end.",
    KeyEvent.ROTATION: "Rotating makes a new key that may do the same; the old one can go on for "
    "as long as it takes to replace it everywhere.",
}


def send(user: User, about: Alert | KeyReminder) -> None:
    """Raises what mail servers make Python raise: OSError and its kin."""
    subject, text = told(about)
    send_mail(subject, text, settings.DEFAULT_FROM_EMAIL, [user.email])


def told(about: Alert | KeyReminder) -> tuple[str, str]:
    """The subject, in one line whatever names are, and the text."""
    return _of_alert(about) if isinstance(about, Alert) else _of_reminder(about)


def _of_reminder(reminder: KeyReminder) -> tuple[str, str]:
    name = " ".join(reminder.key_name.split())
    what = f"{reminder.get_event_display()} at {_time(reminder.happens_at)}"
    subject = f"API key {name} {what}"
    lines = [
        f"The API key {name} ({reminder.hint}) of {reminder.owner_name}, in "
        f"{reminder.project_name}, {what}.",
        _ADVICE[KeyEvent(reminder.event)],
    ]
    if settings.VINERY_PUBLIC_URL:
        lines.append(f"{settings.VINERY_PUBLIC_URL}/console/keys/")
    return subject[:200], "\n\n".join(lines) + "\n"


def _of_alert(alert: Alert) -> tuple[str, str]:
    whose = " ".join(f"{_scope(alert)} {alert.whose}".split())
    metric = Metric(alert.metric).label
    subject = f"{alert.percent} % of {whose}'s {metric} are used"
    lines = [
        f"{alert.num_used:,} of {alert.amount:,} {metric} are used by {whose}, counted since "
        f"{_time(alert.window_start)}."
        if alert.resets_at
        else f"{alert.num_used:,} of {alert.amount:,} {metric} are used by {whose}.",
    ]
    if alert.num_used >= alert.amount:
        lines.append(
            "The limit only counts, and nothing is refused."
            if alert.is_shadow
            else "Requests that it binds are refused now."
        )
    elif alert.runs_out_at:
        lines.append(f"At this pace nothing is left from {_time(alert.runs_out_at)} on.")
    else:
        lines.append("At this pace it lasts.")
    if alert.resets_at:
        lines.append(f"It begins anew at {_time(alert.resets_at)}.")
    return subject[:200], "\n\n".join(lines) + "\n"


def _scope(alert: Alert) -> str:
    kind = alert.scope.partition(":")[0]
    return {"platform": "the platform", "organization": "organisation"}.get(kind, kind)


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
