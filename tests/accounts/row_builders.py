"""Complete rows of records; tests name the values that matter."""

from datetime import timedelta
from typing import Any

from django.utils import timezone

from vinery_accounts.models import (
    Alert,
    ApiKey,
    Capture,
    KeyReminder,
    QuarantinedRequest,
    RefusedRequest,
)


def stored_refusal(request_id: str = "r1", **values: Any) -> RefusedRequest:
    filled = {
        "created_at": timezone.now(),
        "model": "tiny-chat",
        "scope": "platform",
        "metric": "tokens",
        "window": "day",
        "amount": 1,
        "level": 1,
        "needed": 1,
    }
    return RefusedRequest.objects.create(request_id=request_id, **{**filled, **values})


def stored_quarantined(digest: str = "0" * 32, **values: Any) -> QuarantinedRequest:
    now = timezone.now()
    filled = {
        "request_id": "req_1",
        "created_at": now,
        "expires_at": now + timedelta(hours=1),
        "model": "tiny-chat",
    }
    return QuarantinedRequest.objects.create(digest=digest, **{**filled, **values})


def stored_alert(**values: Any) -> Alert:
    now = timezone.now()
    filled = {
        "limit_id": 1,
        "scope": "platform",
        "metric": "tokens",
        "window": "day",
        "amount": 100,
        "percent": 80,
        "num_used": 80,
        "window_start": now,
        "created_at": now,
    }
    return Alert.objects.create(**{**filled, **values})


def stored_reminder(key: ApiKey, **values: Any) -> KeyReminder:
    now = timezone.now()
    filled = {
        "organization_id": key.project.organization_id,
        "event": "expires",
        "happens_at": now,
        "days_before": 7,
        "key_name": key.name,
        "hint": key.hint,
        "owner_name": key.owner.username,
        "project_name": key.project.name,
        "created_at": now,
    }
    return KeyReminder.objects.create(key_id=key.pk, **{**filled, **values})


def stored_capture(request_id: str, project_id: int) -> Capture:
    now = timezone.now()
    return Capture.objects.create(
        request_id=request_id,
        project_id=project_id,
        created_at=now,
        expires_at=now + timedelta(hours=1),
        num_body_bytes=1,
        num_answer_bytes=1,
        is_body_cut=False,
        is_answer_cut=False,
        is_redacted=False,
    )
