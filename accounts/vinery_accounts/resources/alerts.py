"""Alerts about quotas, and the webhooks that receive them."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from django.db.models import OuterRef, Prefetch, QuerySet, Subquery
from rest_framework import serializers

from vinery_accounts.access import changes
from vinery_accounts.access.access import Access
from vinery_accounts.alerts import webhooks
from vinery_accounts.alerts.deliveries import retry_failed
from vinery_accounts.models import Alert, Delivery, DeliveryState, Organization, Scope, Webhook
from vinery_accounts.resources import fields
from vinery_accounts.resources.base import Issued, Resource, RowAction, columns_of
from vinery_accounts.resources.limits import in_money


class DeliverySerializer(serializers.ModelSerializer):  # type: ignore[type-arg]
    """A message to one receiver."""

    receiver = serializers.CharField(help_text="The name of a webhook or a user.")

    class Meta:
        model = Delivery
        fields = ("receiver", "state", "num_tries", "due_at", "sent_at", "error")


class AlertSerializer(serializers.ModelSerializer):  # type: ignore[type-arg]
    """A quota reached a threshold."""

    deliveries = DeliverySerializer(many=True, help_text="The messages and their states.")

    class Meta:
        model = Alert
        fields = [
            *("id", "created_at", "limit_id", "organization_id", "scope", "whose", "metric"),
            *("window", "amount", "is_shadow", "percent", "num_used", "window_start"),
            *("resets_at", "runs_out_at", "deliveries"),
        ]


class AlertFilters(fields.DatedFilters):
    state = fields.choice_filter(DeliveryState.choices, "Only with a message in this state.")

    def filter_state(self, rows: QuerySet[Alert], state: str) -> QuerySet[Alert]:
        found = Delivery.objects.filter(state=state).order_by()
        return rows.filter(pk__in=found.values("alert_id"))


def deliveries(alert: Alert) -> list[str]:
    return [_delivery(each) for each in alert.deliveries.all()]


def _delivery(each: Delivery) -> str:
    if not each.error:
        return f"{each.receiver}: {each.state}"
    tries = "1 try" if each.num_tries == 1 else f"{each.num_tries} tries"
    return f"{each.receiver}: {each.state} after {tries} ({each.error})"


class Alerts(Resource[Alert]):
    """Quotas that reached a threshold, once in each window, the newest first."""

    model = Alert
    path, title = "alerts", "Alerts"
    serializer = AlertSerializer
    filters = AlertFilters.of(
        organization_id=fields.id_filter("an organisation"),
        limit_id=fields.id_filter("a limit"),
        scope=fields.text_filter("Only about limits of this scope, such as key:12."),
        **fields.limit_filters(),
    )
    one, many = "an alert", "alerts"
    empty_text = (
        "No alert yet. One comes when 50, 80 or 100 % of a quota are used, or what its limit names."
    )
    columns = columns_of(
        "created_at percent whose metric window used=num_used amount shadow=is_shadow",
        whose=lambda alert: alert.whose or alert.scope,
    ) | {"messages": deliveries}
    search = ("scope", "whose")
    ordering = ("-created_at",)
    read_scope = Scope.USAGE.value

    def extra_columns(self, rows: Sequence[Alert]) -> Sequence[Mapping[str, Any]]:
        texts = in_money(rows, ("num_used", "amount"))
        return [{k.removeprefix("num_"): text for k, text in each.items()} for each in texts]

    def rows(self, access: Access) -> QuerySet[Alert]:
        named = Delivery.objects.select_related("webhook", "user")
        return super().rows(access).prefetch_related(Prefetch("deliveries", named))


class WebhookSerializer(fields.StrictModelSerializer):
    """A URL that receives alerts."""

    organization = fields.VisibleRelatedField(
        Organization,
        required=False,
        allow_null=True,
        default=None,
        help_text="The organisation's id; null: limits of the platform and of models.",
    )

    class Meta:
        model = Webhook
        fields = [
            *("id", "organization", "name", "url", "is_active", "gets_responses"),
            *("previous_secret_until", "created_at", "updated_at"),
        ]
        read_only_fields = ("previous_secret_until",)
        fixed = ("organization",)


NewWebhookSerializer = fields.with_secret(
    WebhookSerializer, "Keep it now: it verifies signatures, as standardwebhooks.com specifies."
)


class SecretRotationSerializer(fields.StrictSerializer):
    """How a secret is rotated."""

    grace_s = serializers.IntegerField(
        default=int(webhooks.USUAL_GRACE.total_seconds()),
        min_value=0,
        max_value=int(webhooks.MAX_GRACE.total_seconds()),
        help_text="How many seconds the old secret signs, too; 0 for a leaked secret.",
    )


class TestedSerializer(fields.StrictSerializer):
    """Whether a test was delivered."""

    is_delivered = serializers.BooleanField()
    error = serializers.CharField(help_text="Why not; empty when it was delivered.")


class RetriedSerializer(fields.StrictSerializer):
    """How many messages are sent again."""

    num_messages = serializers.IntegerField()


def _retry(webhook: Webhook) -> dict[str, Any]:
    return {"num_messages": retry_failed(webhook)}


def _rotate(webhook: Webhook, *, grace_s: float) -> Issued:
    return Issued(webhook, webhooks.rotate(webhook, timedelta(seconds=grace_s)))


def _test(webhook: Webhook) -> dict[str, Any]:
    try:
        webhooks.send(webhook, webhooks.test_event())
    except webhooks.NotDelivered as error:
        return {"is_delivered": False, "error": str(error)}
    return {"is_delivered": True, "error": ""}


class Webhooks(Resource[Webhook]):
    """URLs that receive alerts, and ends of background responses with `gets_responses`, in signed
    requests, as standardwebhooks.com specifies: HMAC-SHA-256 with the secret over
    `id.timestamp.body`, in the headers `webhook-id`, `webhook-timestamp` and `webhook-signature`.
    Refuse timestamps that are older than five minutes and ids that you have seen. Admins of an
    organisation manage its webhooks, administrators those of the platform."""

    model = Webhook
    path, title = "webhooks", "Webhooks"
    serializer = WebhookSerializer
    answers = {"create": NewWebhookSerializer}
    related = ("organization",)
    filters = fields.Filters.of(
        organization=fields.id_filter("an organisation", "organization_id"),
        **fields.named_filters(),
    )
    ordering = ("name",)
    one, many = "a webhook", "webhooks"
    verbs = frozenset({"create", "change", "remove"})
    help = {
        "create": "Create a webhook. The response holds its secret, which is never returned again.",
        "remove": "Remove a webhook, with the list of its deliveries. Its URL gets no messages.",
    }
    empty_text = "No webhook yet: alerts are sent by e-mail only, if there is a mail server."
    actions = (
        RowAction(
            "rotate",
            _rotate,
            "Give a webhook a new secret, which is returned once. During the grace period messages "
            "carry two signatures, one with each secret, separated by a space.",
            "rotated",
            SecretRotationSerializer,
            NewWebhookSerializer,
        ),
        RowAction(
            "test",
            _test,
            "Send a `webhook.test` now, and report whether it was delivered.",
            answer=TestedSerializer,
        ),
        RowAction(
            "retry",
            _retry,
            "Send the messages again whose last try has failed.",
            answer=RetriedSerializer,
        ),
    )
    columns = columns_of(
        "id name organization url active=is_active last_delivery",
        organization=lambda webhook: str(webhook.organization or "the platform"),
        last_delivery=lambda each: f"{each.last_state or ''} {each.last_error or ''}".strip(),
    )
    search = ("name", "url")

    def listed(self, access: Access) -> QuerySet[Webhook]:
        newest = Delivery.objects.filter(webhook=OuterRef("pk")).order_by("-id")
        state, error = (Subquery(newest.values(name)[:1]) for name in ("state", "error"))
        return super().listed(access).annotate(last_state=state, last_error=error)

    def create(self, access: Access, values: Mapping[str, Any]) -> Issued:
        webhook, secret = webhooks.make(**values)
        self.check(access, webhook)
        return Issued(changes.add(webhook), secret)


ALERTS: Final = Alerts()
WEBHOOKS: Final = Webhooks()
