"""Alerts about quotas and reminders about keys, and their receivers."""

from typing import Any, Final

from django.conf import settings
from django.db.models import Q

from vinery_accounts.alerts.deliveries import lead, reachable
from vinery_accounts.console.rows import ResourcePage, page_of
from vinery_accounts.models import Webhook
from vinery_accounts.resources.alerts import ALERTS, KEY_REMINDERS
from vinery_accounts.services.access import Access

_MAX_REMINDERS: Final = 20


class Alerts(ResourcePage):
    """`/console/alerts/`."""

    name = "alerts"
    template_name = "console/alerts.html"
    resource = ALERTS

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        rows = ALERTS.rows(self.access).order_by("-created_at", "-id")
        reminders = KEY_REMINDERS.rows(self.access).order_by("-created_at", "-id")
        return super().get_context_data(**kwargs) | {
            **page_of(rows, self.request),
            **receivers(self.access),
            "reminders": reminders[:_MAX_REMINDERS],
        }


def receivers(access: Access) -> dict[str, Any]:
    """Return the active webhooks that the user may see, and the users who get e-mails about
    limits of the user's organisations."""
    webhooks = access.rows(Webhook).filter(is_active=True).order_by("name")
    organizations = [pk for pk in access.organizations if access.leads(pk)]
    scope = Q(organization__in=organizations, project=None)
    people = reachable().filter(lead(scope)) if settings.VINERY_HAS_EMAIL else ()
    return {
        "webhooks": webhooks,
        "people": people,
        "has_email": settings.VINERY_HAS_EMAIL,
    }
