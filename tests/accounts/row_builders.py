"""Complete rows of records, for which tests name the values that matter, and the logged entries."""

from datetime import timedelta
from typing import Any

from django.utils import timezone

from vinery_accounts import models
from vinery_accounts.access import changes
from vinery_accounts.captures.store import CapturedRequest
from vinery_serving.media.rules import Denial, DenialReason
from vinery_serving.media.tables.denials import Count, store_denials
from vinery_serving.media.tables.models import MediaDenial

HOUR = timedelta(hours=1)
TOKENS_A_DAY = {"scope": "platform", "metric": "tokens", "window": "day"}


def logged(**which: Any) -> list[str]:
    """The actions of these entries of the audit log, in order."""
    entries = models.AuditEntry.objects.filter(**which).order_by("number")
    return list(entries.values_list("action", flat=True))


def stored_limit(scope: str = "platform", scope_id: int = 0, **values: Any) -> models.Limit:
    """Store a limit with an entry in the audit log."""
    filled = {**TOKENS_A_DAY, "scope": scope, "scope_id": scope_id, "amount": 9}
    return changes.add(models.Limit(**{**filled, **values}))


def stored_refusal(request_id: str = "r1", **values: Any) -> models.RefusedRequest:
    filled = {**TOKENS_A_DAY, "created_at": timezone.now(), "model": "tiny-chat"}
    filled |= {"amount": 1, "level": 1, "needed": 1}
    return models.RefusedRequest.objects.create(request_id=request_id, **{**filled, **values})


def stored_quarantined(digest: str = "0" * 32, **values: Any) -> models.QuarantinedRequest:
    now = timezone.now()
    filled = {"request_id": "req_1", "created_at": now, "model": "tiny-chat"}
    filled |= {"expires_at": now + HOUR}
    return models.QuarantinedRequest.objects.create(digest=digest, **{**filled, **values})


def stored_alert(**values: Any) -> models.Alert:
    now = timezone.now()
    filled = {**TOKENS_A_DAY, "window_start": now, "created_at": now}
    filled |= {"limit_id": 1, "amount": 100, "percent": 80, "num_used": 80}
    return models.Alert.objects.create(**{**filled, **values})


def stored_capture(request_id: str, project_id: int) -> models.Capture:
    now = timezone.now()
    ids = {"request_id": request_id, "project_id": project_id}
    marks = dict.fromkeys(("is_body_cut", "is_answer_cut", "is_redacted"), False)
    sizes = {"num_body_bytes": 1, "num_answer_bytes": 1}
    times = {"created_at": now, "expires_at": now + HOUR}
    return models.Capture.objects.create(**ids, **marks, **sizes, **times)


def stored_denial(project: models.Project, num: int = 3, **values: Any) -> MediaDenial:
    """A URL, or the given folder, that was refused so many times."""
    url = {"scheme": "https", "host": "a.example.org", "port": 443}
    filled = {"reason": DenialReason.NO_RULE, "level": "platform"}
    denial = Denial(**{**filled, **({} if "folder" in values else url), **values})
    whose, now = (project.organization_id, project.pk, denial), timezone.now()
    store_denials({whose: Count(num, now, now, denial)})
    return MediaDenial.objects.latest("pk")


def captured(project: models.Project, request_id: str, body: bytes, **more: Any) -> CapturedRequest:
    """A request whose texts may be stored, with an empty answer."""
    ids = {"request_id": request_id, "project_id": project.pk, "created_at": timezone.now()}
    names = {"dialect": "v1", "endpoint": "completions", "model": "tiny-chat"}
    texts = {"body": body, "num_body_bytes": len(body), "answer": b"", "num_answer_bytes": 0}
    return CapturedRequest(**{**ids, **names, **texts, **more})
