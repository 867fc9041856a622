"""Alerts as e-mails, in plain text."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings
from django.core.mail import send_mail

from accounts.models import Alert, LimitMetric, User


def send(user: User, alert: Alert) -> None:
    """Raises what mail servers make Python raise: OSError and its kin."""
    subject, text = told(alert)
    send_mail(subject, text, settings.DEFAULT_FROM_EMAIL, [user.email])


def told(alert: Alert) -> tuple[str, str]:
    """The subject, in one line whatever names are, and the text."""
    whose = " ".join(f"{_scope(alert)} {alert.whose}".split())
    metric = LimitMetric(alert.metric).label
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
