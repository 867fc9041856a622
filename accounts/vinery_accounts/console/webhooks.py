"""Webhooks: the list, new ones, and a page for each with its last deliveries."""

from typing import Any, Final

from django.contrib import messages
from django.db.models import OuterRef, Subquery
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.template.defaultfilters import pluralize

from vinery_accounts.console.page import FormPage
from vinery_accounts.console.projects import led_organizations
from vinery_accounts.console.rows import (
    GRACES,
    ConfirmPage,
    Question,
    ResourcePage,
    RowPage,
    grace_of,
    page_of,
)
from vinery_accounts.models import Delivery, DeliveryState, Webhook
from vinery_accounts.resources.alerts import WEBHOOKS
from vinery_accounts.resources.base import Issued, require
from vinery_accounts.resources.forms import ResourceForm
from vinery_accounts.services.access import Action

_MAX_DELIVERIES: Final = 20


class Webhooks(ResourcePage):
    """`/console/webhooks/`."""

    name = "webhooks"
    template_name = "console/webhooks.html"
    resource = WEBHOOKS

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        newest = Delivery.objects.filter(webhook=OuterRef("pk")).order_by("-id")
        rows = WEBHOOKS.rows(self.access).annotate(
            last_state=Subquery(newest.values("state")[:1]),
            last_error=Subquery(newest.values("error")[:1]),
        )
        return super().get_context_data(**kwargs) | page_of(rows.order_by("name"), self.request)


class NewWebhook(FormPage):
    """`/console/webhooks/new/`."""

    name = "webhooks"
    template_name = "console/webhook_form.html"

    def form_of(self, data: QueryDict | None) -> ResourceForm:
        organizations = led_organizations(self.access)
        form = ResourceForm(
            WEBHOOKS, ("organization", "name", "url"), data, {"organization": organizations}
        )
        if not self.access.is_superuser:  # without one, a webhook is the platform's
            form.fields["organization"].required = True
        return form

    def save(self, form: ResourceForm) -> HttpResponse:
        return show_secret(self, WEBHOOKS.create(self.access, form.columns))


def show_secret(page: FormPage | RowPage, new: Issued) -> HttpResponse:
    """Return the page with the secret, which is never shown again."""
    context = page.get_context_data() | {"webhook": new.row, "secret": new.secret}
    return render(page.request, "console/webhook_made.html", context)


class WebhookPage(RowPage, FormPage):
    """`/console/webhooks/<id>/`."""

    name = "webhooks"
    template_name = "console/webhook.html"
    resource = WEBHOOKS

    def form_of(self, data: QueryDict | None) -> ResourceForm:
        names = ("name", "url", "is_active")
        initial = {name: getattr(self.row, name) for name in names}
        return ResourceForm(WEBHOOKS, names, data, initial=initial)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        webhook: Webhook = self.row
        found = Delivery.objects.filter(webhook=webhook).select_related("alert")
        return super().get_context_data(**kwargs) | {
            "deliveries": found.order_by("-id")[:_MAX_DELIVERIES],
            "has_failed": found.filter(state=DeliveryState.FAILED).exists(),
            "graces": GRACES,
        }

    def save(self, form: ResourceForm) -> HttpResponse:
        WEBHOOKS.change(self.access, self.row, form.columns)
        messages.success(self.request, "The webhook is changed.")
        return redirect("console:webhook", self.row.pk)


class ActOnWebhook(RowPage):
    """`/console/webhooks/<id>/test/`, `retry/` and `rotate/`: buttons of the webhook's page."""

    name = "webhooks"
    resource = WEBHOOKS
    does = "test"

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        return redirect("console:webhook", self.row.pk)

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        require(self.access, Action.MANAGE, self.row)
        values = {"grace_s": grace_of(request)} if self.does == "rotate" else {}
        result = WEBHOOKS.act(self.access, WEBHOOKS.action(self.does), self.row, **values)
        if isinstance(result, Issued):
            return show_secret(self, result)
        self._report(result)
        return redirect("console:webhook", self.row.pk)

    def _report(self, result: dict[str, Any]) -> None:
        if "num_messages" in result:
            number = result["num_messages"]
            text = f"{number} message{pluralize(number)} will be sent again within a minute."
            messages.success(self.request, text)
        elif result["is_delivered"]:
            messages.success(self.request, "The test was delivered.")
        else:
            messages.error(self.request, f"The test was not delivered. {result['error']}")


class RemoveWebhook(ConfirmPage):
    """`/console/webhooks/<id>/remove/`."""

    name = "webhooks"
    resource = WEBHOOKS
    does = "remove"
    questions = {
        "remove": Question(
            "Remove the webhook {row}?",
            "{row.url} gets no more messages, and the list of its deliveries is deleted.",
            "Remove",
            "The webhook {row} is removed.",
        )
    }
