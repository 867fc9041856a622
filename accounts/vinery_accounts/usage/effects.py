"""What a limit did to a request. It follows from the HTTP status of the usage record."""

from http import HTTPStatus

from django.db.models import Case, CharField, OuterRef, QuerySet, Subquery, TextChoices, Value, When

from vinery_accounts.models import RefusedRequest, UsageRecord


class Effect(TextChoices):
    """The names are those of the label `effect` in `/metrics`."""

    REFUSED = "refused", "refused"
    CUT_SHORT = "cut_short", "cut short"
    SHADOW = "shadow", "shadow"


def with_effect(rows: QuerySet[RefusedRequest]) -> QuerySet[RefusedRequest]:
    """Annotate refusals with `effect`, which is None if the usage record has been deleted."""
    usage = UsageRecord.objects.filter(request_id=OuterRef("request_id")).order_by()
    refused = When(http_status=HTTPStatus.TOO_MANY_REQUESTS.value, then=Value(Effect.REFUSED.value))
    answered = Case(refused, default=Value(Effect.CUT_SHORT.value), output_field=CharField())
    return rows.annotate(
        effect=Case(
            When(is_shadow=True, then=Value(Effect.SHADOW.value)),
            default=Subquery(usage.values_list(answered)[:1]),
            output_field=CharField(),
        )
    )
