"""Webhooks and their permitted addresses, alerts of quotas, and deliveries.

Webhooks are sent to the public internet over TLS. Other addresses, such as databases and a cloud's
metadata service, need the administrator's permission (`VINERY_WEBHOOK_NETWORKS`).
"""

from typing import ClassVar, Final

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q

from vinery_accounts.base.limit_table import Metric
from vinery_accounts.base.money import money
from vinery_accounts.base.names import check_name
from vinery_accounts.base.querysets import Stamped
from vinery_accounts.outbound.addresses import AddressRefused, is_public, is_within, read_address
from vinery_accounts.outbound.urls import Url, UrlRefused, read_url

WEBHOOK_PURPOSE: Final = b"vinery webhooks"


def check_url(url: str) -> Url:
    """The URL of a webhook, without a DNS query. Raises `AddressRefused`."""
    if not url.isascii():
        raise AddressRefused("Write the URL in ASCII, without spaces.")
    try:
        target = read_url(url)
    except UrlRefused as error:
        raise AddressRefused(str(error)) from None
    if not target.is_tls and not settings.VINERY_WEBHOOK_NETWORKS:
        raise AddressRefused("Use https://: without TLS, others can read and change what is sent.")
    if read_address(target.host) is not None:
        check_address(target.host, is_tls=target.is_tls)
    return target


def check_address(address: str, *, is_tls: bool) -> None:
    """Raises `AddressRefused` for an address that a webhook may not be sent to."""
    if is_within(address, settings.VINERY_WEBHOOK_NETWORKS):
        return
    if not is_tls:
        raise AddressRefused(
            "Use https://: the administrator has not allowed http:// to this address."
        )
    if not is_public(address, allows_translated=True):
        raise AddressRefused(
            "This address is not public, and the administrator has not allowed it."
        )


class Webhook(Stamped):
    """A URL that receives the alerts of an organisation, or those of the platform, and the ends of
    background responses if it asks for them."""

    # Columns with the purposes of their encryption.
    ENCRYPTED: ClassVar = {"secret": WEBHOOK_PURPOSE, "previous_secret": WEBHOOK_PURPOSE}

    organization = models.ForeignKey(
        "accounts.Organization",
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="webhooks",
        verbose_name="organisation",
        help_text="Empty: limits of the platform and of models.",
    )
    name = models.CharField(max_length=100, validators=[check_name])
    url = models.CharField("URL", max_length=2000)
    secret = models.TextField(editable=False, help_text="Encrypted: it signs what is sent.")
    previous_secret = models.TextField(
        editable=False, blank=True, default="", help_text="Encrypted: it signs, too, for a time."
    )
    previous_secret_until = models.DateTimeField(
        editable=False,
        null=True,
        blank=True,
        help_text="Until then the previous secret signs, too.",
    )
    is_active = models.BooleanField("active", default=True)
    gets_responses = models.BooleanField(
        "ends of background responses",
        default=False,
        db_default=False,
        help_text="Whether it also gets response.completed, response.failed, response.incomplete "
        "and response.cancelled of background responses.",
    )
    created_at = models.DateTimeField("created", auto_now_add=True)

    class Meta:
        ordering = ["name", "id"]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        try:
            check_url(self.url)
        except AddressRefused as error:
            raise ValidationError({"url": str(error)}) from None


class Alert(models.Model):
    """A quota reached a threshold: one row for each window and threshold. Names are copied, because
    alerts outlive their limits."""

    limit_id = models.BigIntegerField()
    organization_id = models.BigIntegerField(
        null=True, help_text="Empty: a limit of the platform or of a model."
    )
    scope = models.CharField(max_length=300, help_text="Whose limit, such as key:12.")
    whose = models.CharField(max_length=300, blank=True, default="", help_text="The name of it.")
    metric = models.CharField(max_length=16)
    window = models.CharField(max_length=8)
    amount = models.PositiveBigIntegerField(help_text="The limit.")
    is_shadow = models.BooleanField("shadow", default=False)
    percent = models.PositiveSmallIntegerField("threshold", help_text="In percent.")
    num_used = models.PositiveBigIntegerField("used")
    window_start = models.DateTimeField("since")
    resets_at = models.DateTimeField(null=True)
    runs_out_at = models.DateTimeField(
        null=True, help_text="At the pace of then; empty: it would have lasted."
    )
    created_at = models.DateTimeField("at")

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["limit_id", "window_start", "percent"], name="one_alert_in_a_window"
            )
        ]
        indexes = [
            models.Index(fields=["created_at", "id"], name="alert_by_time"),
            models.Index(fields=["organization_id", "created_at"], name="alert_by_organization"),
        ]

    def __str__(self) -> str:
        is_money = self.metric == Metric.COST
        amount = money(self.amount, "") if is_money else self.amount
        return f"{self.percent} % of {amount} {self.metric}, {self.whose or self.scope}"


class DeliveryState(models.TextChoices):
    PENDING = "pending", "pending"
    SENT = "sent", "sent"
    FAILED = "failed", "failed"


class Delivery(models.Model):
    """One message to one receiver, about an alert or another event: a job. A worker moves `due_at`
    ahead before it sends, so no other worker sends the message too. If the worker dies, the message
    becomes due again."""

    alert = models.ForeignKey(Alert, on_delete=models.CASCADE, related_name="deliveries", null=True)
    event = models.JSONField(null=True, editable=False, help_text="What is sent without an alert.")
    webhook = models.ForeignKey(Webhook, on_delete=models.CASCADE, null=True)
    user = models.ForeignKey(
        "accounts.User", on_delete=models.CASCADE, null=True, help_text="By e-mail."
    )
    state = models.CharField(
        max_length=8, choices=DeliveryState.choices, default=DeliveryState.PENDING
    )
    due_at = models.DateTimeField("next try")
    num_tries = models.PositiveSmallIntegerField("tries", default=0)
    sent_at = models.DateTimeField("sent", null=True)
    error = models.CharField("last error", max_length=300, blank=True, default="")

    class Meta:
        verbose_name_plural = "deliveries"
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(webhook__isnull=False, user=None) | Q(webhook=None, user__isnull=False),
                name="one_receiver_of_a_delivery",
            ),
            models.UniqueConstraint(fields=["alert", "webhook"], name="one_call_of_a_webhook"),
            models.UniqueConstraint(fields=["alert", "user"], name="one_mail_to_a_user"),
        ]
        indexes = [
            models.Index(
                fields=["due_at"], condition=Q(state=DeliveryState.PENDING), name="delivery_due"
            )
        ]

    def __str__(self) -> str:
        return f"{self.about} to {self.receiver}"

    @property
    def about(self) -> str:
        event = self.event or {"type": "", "data": {}}
        return str(self.alert or f"{event['type']} {event['data'].get('id', '')}")

    @property
    def receiver(self) -> str:
        return f"webhook {self.webhook}" if self.webhook_id else f"e-mail to {self.user}"
