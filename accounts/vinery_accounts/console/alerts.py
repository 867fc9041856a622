"""Alerts about quotas, and their receivers."""

from typing import Any, Final

from django.conf import settings
from django.db.models import Q

from vinery_accounts.alerts.deliveries import lead, reachable
from vinery_accounts.console.rows import ResourcePage, page_of
from vinery_accounts.models import Webhook
from vinery_accounts.resources.alerts import ALERTS
from vinery_accounts.services.access import Access

_MAX_PEOPLE: Final = 20


class Alerts(ResourcePage):
    """`/console/alerts/`."""

    name = "alerts"
    template_name = "console/alerts.html"
    resource = ALERTS

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        rows = ALERTS.rows(self.access).order_by("-created_at", "-id")
        return super().get_context_data(**kwargs) | {
            **page_of(rows, self.request),
            **receivers(self.access),
        }


def receivers(access: Access) -> dict[str, Any]:
    """Return the active webhooks that the user may see, and the users who get e-mails about the
    limits that the user leads: as `people_for` in `alerts/thresholds.py` finds them."""
    webhooks = access.rows(Webhook).filter(is_active=True).order_by("name")
    people = reachable().filter(_readers(access)).order_by("email")
    found = list(people[: _MAX_PEOPLE + 1]) if settings.VINERY_HAS_EMAIL else []
    return {
        "webhooks": webhooks,
        "people": found[:_MAX_PEOPLE],
        "has_more_people": len(found) > _MAX_PEOPLE,
        "has_email": settings.VINERY_HAS_EMAIL,
        "may_make_webhooks": access.leads_organization,
    }


def _readers(access: Access) -> Q:
    if access.is_superuser:
        return Q(is_superuser=True) | lead(Q())
    organizations = [pk for pk in access.organizations if access.leads(pk)]
    projects = [pk for pk in access.projects if access.leads(None, pk)]
    return lead(Q(organization__in=organizations, project=None) | Q(project__in=projects))
