"""Alerts and reminders as e-mails, in plain text."""

from datetime import datetime
from typing import Final

from django.conf import settings
from django.core.mail import send_mail

from vinery_accounts.base.limit_table import Metric
from vinery_accounts.models import Alert, KeyEvent, KeyReminder, User

_ADVICE: Final = {
    KeyEvent.EXPIRES: "From then on requests with this key are refused, and running requests end. "
    "Rotate the key, create a new one, or change its expiry.",
    KeyEvent.ROTATION: "Rotation creates a new key with the same rights. The old key can keep "
    "working for a grace period while you replace it.",
}


def send(user: User, about: Alert | KeyReminder) -> None:
    """Send one e-mail. Raises OSError or `smtplib.SMTPException`."""
    subject, text = content_of(about)
    send_mail(subject, text, settings.DEFAULT_FROM_EMAIL, [user.email])


def content_of(about: Alert | KeyReminder) -> tuple[str, str]:
    """Return the subject, always one line, and the text."""
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
    since = f", counted since {_time(alert.window_start)}" if alert.resets_at else ""
    lines = [f"{alert.num_used:,} of {alert.amount:,} {metric} are used by {whose}{since}."]
    if alert.num_used >= alert.amount:
        lines.append(
            "This is a shadow limit: it refuses nothing."
            if alert.is_shadow
            else "Requests under this limit are refused now."
        )
    elif alert.runs_out_at:
        lines.append(f"At this pace the quota may be used up at {_time(alert.runs_out_at)}.")
    else:
        lines.append("At this pace the quota lasts.")
    if alert.resets_at:
        lines.append(f"It resets at {_time(alert.resets_at)}.")
    return subject[:200], "\n\n".join(lines) + "\n"


def _scope(alert: Alert) -> str:
    kind = alert.scope.partition(":")[0]
    return {"platform": "the platform", "organization": "organisation"}.get(kind, kind)


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
