"""Complete rows of records; tests name the values that matter."""

from datetime import timedelta
from typing import Any

from django.utils import timezone

from vinery_accounts.models import (
    Alert,
    ApiKey,
    Capture,
    KeyReminder,
    Limit,
    QuarantinedRequest,
    RefusedRequest,
)
from vinery_accounts.services import changes


def stored_refusal(request_id: str = "r1", **values: Any) -> RefusedRequest:
    limit = {"scope": "platform", "metric": "tokens", "window": "day"}
    counts = {"amount": 1, "level": 1, "needed": 1}
    filled = {"created_at": timezone.now(), "model": "tiny-chat", **limit, **counts, **values}
    return RefusedRequest.objects.create(request_id=request_id, **filled)


def stored_quarantined(digest: str = "0" * 32, **values: Any) -> QuarantinedRequest:
    now = timezone.now()
    times = {"created_at": now, "expires_at": now + timedelta(hours=1)}
    filled = {"request_id": "req_1", "model": "tiny-chat", **times, **values}
    return QuarantinedRequest.objects.create(digest=digest, **filled)


def stored_alert(**values: Any) -> Alert:
    now = timezone.now()
    limit = {"limit_id": 1, "scope": "platform", "metric": "tokens", "window": "day"}
    counts = {"amount": 100, "percent": 80, "num_used": 80}
    times = {"window_start": now, "created_at": now}
    return Alert.objects.create(**{**limit, **counts, **times, **values})


def stored_reminder(key: ApiKey, **values: Any) -> KeyReminder:
    now = timezone.now()
    names = {"owner_name": key.owner.username, "project_name": key.project.name}
    of_key = {"key_id": key.pk, "key_name": key.name, "hint": key.hint}
    event = {"event": "expires", "days_before": 7, "happens_at": now, "created_at": now}
    organization_id = key.project.organization_id
    filled = {"organization_id": organization_id, **of_key, **names, **event, **values}
    return KeyReminder.objects.create(**filled)


def stored_capture(request_id: str, project_id: int) -> Capture:
    now = timezone.now()
    times = {"created_at": now, "expires_at": now + timedelta(hours=1)}
    sizes = {"num_body_bytes": 1, "num_answer_bytes": 1}
    marks = {"is_body_cut": False, "is_answer_cut": False, "is_redacted": False}
    of = {"request_id": request_id, "project_id": project_id}
    return Capture.objects.create(**of, **times, **sizes, **marks)


def new_limit(scope: str = "platform", scope_id: int = 0, **values: Any) -> Limit:
    """Add a limit as services do, with an entry of the log."""
    filled = {"metric": "tokens", "window": "day", "amount": 1, **values}
    return changes.add(Limit(scope=scope, scope_id=scope_id, **filled))
