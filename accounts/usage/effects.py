"""What a limit did to a request: nothing in its row says so, but how the request was answered."""

from __future__ import annotations

from typing import Final

from django.db.models import Case, CharField, OuterRef, QuerySet, Subquery, TextChoices, Value, When

from accounts.models import RefusedRequest, UsageRecord

_TOO_MANY_REQUESTS: Final = 429


class Effect(TextChoices):
    """By the names that `/metrics` has for them."""

    REFUSED = "refused", "refused"
    CUT_SHORT = "cut_short", "cut short"
    SHADOW = "shadow", "shadow"


def with_effect(rows: QuerySet[RefusedRequest]) -> QuerySet[RefusedRequest]:
    """The rows with their `effect`, which is None where the usage row is deleted already, and
    the `finish_reason` of the answer."""
    usage = UsageRecord.objects.filter(request_id=OuterRef("request_id")).order_by()
    refused = When(http_status=_TOO_MANY_REQUESTS, then=Value(Effect.REFUSED.value))
    answered = Case(refused, default=Value(Effect.CUT_SHORT.value), output_field=CharField())
    return rows.annotate(
        effect=Case(
            When(is_shadow=True, then=Value(Effect.SHADOW.value)),
            default=Subquery(usage.values_list(answered)[:1]),
            output_field=CharField(),
        ),
        finish_reason=Subquery(usage.values("finish_reason")[:1]),
    )
