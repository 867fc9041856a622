"""Quotas as they stand, alerts about them, reminders of keys, and the webhooks that hear of
these."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

from django.db.models import Prefetch, QuerySet
from django.http import Http404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.alerts import quotas, webhooks
from accounts.api.base import Changes, Removes, Rows
from accounts.api.books import Dated
from accounts.api.limits import LimitFilters
from accounts.api.organizations import Seen, fixed
from accounts.api.wire import (
    Filters,
    Nothing,
    Strict,
    StrictModel,
    choice_filter,
    id_filter,
    switch_filter,
    text_filter,
)
from accounts.base.limit_table import METRIC_CHOICES, WINDOW_CHOICES
from accounts.models import (
    Alert,
    Delivery,
    DeliveryState,
    KeyEvent,
    KeyReminder,
    Limit,
    Organization,
    Scope,
    Webhook,
)
from accounts.services import changes
from accounts.services.access import Action


class QuotaBody(serializers.ModelSerializer):  # type: ignore[type-arg]
    """A limit of a day, a week, a month or for ever, as it stands."""

    used = serializers.IntegerField(help_text="Of the window, from the books.")
    left = serializers.IntegerField(help_text="0 when it is used up.")
    window_start = serializers.DateTimeField()
    resets_at = serializers.DateTimeField(allow_null=True, help_text="null: never.")
    runs_out_at = serializers.DateTimeField(
        allow_null=True,
        help_text="When nothing is left at the pace of the window and the last seven days; "
        "null: it lasts until it begins anew.",
    )

    class Meta:
        model = Limit
        fields = [
            *("id", "scope", "scope_id", "model", "metric", "window", "amount", "time_zone"),
            *(
                "week_start",
                "is_shadow",
                "used",
                "left",
                "window_start",
                "resets_at",
                "runs_out_at",
            ),
        ]

    def to_representation(self, instance: Any) -> Any:
        """Of a row that the view has looked up."""
        quota: quotas.Quota = instance
        told = {
            name: getattr(quota.limit, name)
            for name in self.Meta.fields[: self.Meta.fields.index("used")]
        }
        moments = ("window_start", "resets_at", "runs_out_at")
        return {
            **told,
            "used": quota.num_used,
            "left": quota.num_left,
            **{name: getattr(quota, name) for name in moments},
        }


class Quotas(Rows):
    """How much of each quota is used, when it begins anew and when it runs out. Those of the
    platform and of models are for administrators of the platform. Keys with the scope `usage`
    read them, too."""

    model = Limit
    serializer_class = QuotaBody
    filters = LimitFilters
    ordering = ("scope", "scope_id", "model", "metric", "window")
    words = ("a quota", "quotas")
    read_scope = Scope.USAGE

    def get_queryset(self) -> QuerySet[Any]:
        """Limits whose use the caller may know."""
        if getattr(self, "swagger_fake_view", False):
            return Limit.objects.none()
        return self.access.quotas_seen()

    def get_serializer(self, *args: Any, **kwargs: Any) -> Any:
        """Over limits: what is used of a whole page is read at once."""
        if not args:
            return super().get_serializer(**kwargs)
        is_one = isinstance(args[0], Limit)
        found = quotas.read_quotas([args[0]] if is_one else args[0], timezone.now())
        if is_one and not found:
            raise Http404
        return super().get_serializer(found[0] if is_one else found, **kwargs)


class DeliveryBody(serializers.ModelSerializer):  # type: ignore[type-arg]
    """A message to one receiver."""

    receiver = serializers.CharField(help_text="A webhook or a person, by name.")

    class Meta:
        model = Delivery
        fields = ["receiver", "state", "num_tries", "due_at", "sent_at", "error"]


class AlertBody(serializers.ModelSerializer):  # type: ignore[type-arg]
    """A quota had reached a threshold."""

    deliveries = DeliveryBody(many=True, help_text="Who was told, and whether it arrived.")

    class Meta:
        model = Alert
        fields = [
            *("id", "created_at", "limit_id", "organization_id", "scope", "whose", "metric"),
            *("window", "amount", "is_shadow", "percent", "num_used", "window_start"),
            *("resets_at", "runs_out_at", "deliveries"),
        ]


class AlertFilters(Dated):
    """Which alerts."""

    organization_id = id_filter("an organisation")
    limit_id = id_filter("a limit")
    scope = text_filter("Of limits of this scope, such as key:12.")
    metric = choice_filter(METRIC_CHOICES, "Only of this metric.")
    window = choice_filter(WINDOW_CHOICES, "Only in this window.")
    is_shadow = switch_filter("Only of limits that refuse nothing, or only of the others.")
    state = choice_filter(DeliveryState.choices, "Only with a message in this state.")

    def filter_state(self, rows: QuerySet[Alert], state: str) -> QuerySet[Alert]:
        """Of any of their messages."""
        found = Delivery.objects.filter(state=state).order_by()
        return rows.filter(pk__in=found.values("alert_id"))


class Told(Rows):
    """What people were told of, with their messages."""

    read_scope = Scope.USAGE

    def get_queryset(self) -> QuerySet[Any]:
        """With their messages, whose receivers have names."""
        named = Delivery.objects.select_related("webhook", "user")
        return super().get_queryset().prefetch_related(Prefetch("deliveries", named))


class Alerts(Told):
    """Quotas that had reached a threshold, each once in its window, the newest first."""

    model = Alert
    serializer_class = AlertBody
    filters = AlertFilters
    ordering = ("-created_at",)
    words = ("an alert", "alerts")


class KeyReminderBody(serializers.ModelSerializer):  # type: ignore[type-arg]
    """A key was about to end."""

    owner = serializers.CharField(source="owner_name")
    project = serializers.CharField(source="project_name")
    deliveries = DeliveryBody(many=True, help_text="Who was told, and whether it arrived.")

    class Meta:
        model = KeyReminder
        fields = [
            *("id", "created_at", "key_id", "organization_id", "event", "happens_at"),
            *("days_before", "key_name", "hint", "owner", "project", "deliveries"),
        ]


class KeyReminderFilters(Dated):
    """Which reminders."""

    organization_id = id_filter("an organisation")
    key_id = id_filter("a key")
    event = choice_filter(KeyEvent.choices, "Only of this.")


class KeyReminders(Told):
    """Keys that were about to end, the newest first: each moment is announced some days before,
    once, and anew when it is moved."""

    model = KeyReminder
    serializer_class = KeyReminderBody
    filters = KeyReminderFilters
    ordering = ("-created_at",)
    words = ("a reminder", "reminders")


class WebhookBody(StrictModel):
    """A URL that is told of alerts."""

    organization = Seen(
        Organization,
        required=False,
        allow_null=True,
        default=None,
        help_text="The organisation's id; null: limits of the platform and of models.",
    )

    class Meta:
        model = Webhook
        fields = [
            *("id", "organization", "name", "url", "is_active", "previous_secret_until"),
            *("created_at", "updated_at"),
        ]
        read_only_fields = ["previous_secret_until", "created_at", "updated_at"]

    def get_fields(self) -> Any:
        """A webhook stays in its organisation."""
        return fixed(super().get_fields(), self, "organization")


class NewWebhookBody(WebhookBody):
    """A webhook with its secret, which is told now and never again."""

    secret = serializers.SerializerMethodField(help_text="Keep it now: it checks signatures.")

    class Meta(WebhookBody.Meta):
        fields = [*WebhookBody.Meta.fields, "secret"]

    def get_secret(self, webhook: Webhook) -> str:
        """What was just drawn."""
        return str(self.context["secret"])


class SecretRotationBody(Strict):
    """How a secret is replaced."""

    grace_s = serializers.IntegerField(
        default=int(webhooks.USUAL_GRACE.total_seconds()),
        min_value=0,
        max_value=int(webhooks.MAX_GRACE.total_seconds()),
        help_text="How many seconds the old secret signs, too; 0 for one that others know.",
    )


class TestedBody(Strict):
    """Whether a test arrived."""

    is_delivered = serializers.BooleanField()
    error = serializers.CharField(help_text="Why not; empty when it arrived.")


class WebhookFilters(Filters):
    """Which webhooks."""

    lookups: ClassVar[dict[str, str]] = {"organization": "organization_id"}
    organization = id_filter("an organisation")
    name = text_filter("Exactly this name.")
    is_active = switch_filter("Only active or inactive ones.")


class Webhooks(Changes, Removes):
    """URLs that are told of alerts in requests signed as standardwebhooks.com has it: HMAC-SHA-256
    with the secret over `id.timestamp.body`, in the headers `webhook-id`, `webhook-timestamp` and
    `webhook-signature`. Refuse timestamps that are older than five minutes and ids that you have
    seen. Admins of an organisation manage its webhooks, administrators those of the platform."""

    model = Webhook
    serializer_class = WebhookBody
    related = ("organization",)
    filters = WebhookFilters
    ordering = ("name",)
    words = ("a webhook", "webhooks")

    @extend_schema(responses={201: NewWebhookBody})
    def create(self, request: Request) -> Response:
        """Make a webhook. The answer holds its secret, which cannot be told again."""
        values = self.read_body()
        webhook, secret = webhooks.make(values["name"], values["url"], values.get("organization"))
        webhook.is_active = values.get("is_active", True)
        self.require(Action.MANAGE, webhook)
        changes.add(webhook)
        context = {**self.get_serializer_context(), "secret": secret}
        return Response(NewWebhookBody(webhook, context=context).data, status=201)

    @extend_schema(request=SecretRotationBody, responses=NewWebhookBody)
    @action(detail=True, methods=["post"])
    def rotate(self, request: Request, pk: str) -> Response:
        """Give a webhook a new secret, which is told now and never again. For a time messages
        carry two signatures, with a blank between them: one with each secret."""
        body = SecretRotationBody(data=request.data)
        body.is_valid(raise_exception=True)
        webhook = self.get_object()
        self.require(Action.MANAGE, webhook)
        secret = webhooks.rotate(webhook, timedelta(seconds=body.validated_data["grace_s"]))
        context = {**self.get_serializer_context(), "secret": secret}
        return Response(NewWebhookBody(webhook, context=context).data)

    @extend_schema(request=Nothing, responses=TestedBody)
    @action(detail=True, methods=["post"])
    def test(self, request: Request, pk: str) -> Response:
        """Send a `webhook.test` now, and say whether it was taken."""
        Nothing(data=request.data).is_valid(raise_exception=True)
        webhook = self.get_object()
        self.require(Action.MANAGE, webhook)
        try:
            webhooks.send(webhook, webhooks.test_event())
        except webhooks.NotDelivered as error:
            return Response({"is_delivered": False, "error": str(error)})
        return Response({"is_delivered": True, "error": ""})
