"""The URLs under `/api/`."""

from dataclasses import asdict
from typing import Any

from django.urls import URLPattern, URLResolver, path, re_path
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter

from vinery_accounts.access import audit as audit_log
from vinery_accounts.api.views import ResourceViewSet, Usage, UsageExport, viewset_of
from vinery_accounts.models import User
from vinery_accounts.resources import (
    alerts,
    keys,
    limits,
    organizations,
    records,
    users,
)
from vinery_accounts.resources.base import require_administrator


@extend_schema(responses=users.MeSerializer)
@action(detail=False, methods=["get"])
def me(self: ResourceViewSet, request: Request) -> Response:
    """Read yourself, or the owner of your key, with all roles."""
    people = User.objects.prefetch_related(
        "memberships__user", "memberships__organization", "memberships__project"
    )
    caller = people.get(pk=self.access.user_id or 0)
    return Response(users.MeSerializer(caller, context=self.get_serializer_context()).data)


@extend_schema(responses=records.VerdictSerializer)
@action(detail=False, methods=["get"], filter_backends=[], pagination_class=None)
def verify(self: ResourceViewSet, request: Request) -> Response:
    """Verify the whole log. Only administrators of the platform may do this."""
    query = self.read_query(records.VerdictQuery)
    require_administrator(self.access)
    verdict = audit_log.verify(query.validated_data.get("newest_hash"))
    return Response({"is_whole": verdict.broken is None, **asdict(verdict)})


_by_request_id: dict[str, Any] = {
    "lookup_field": "request_id",
    "lookup_url_kwarg": "pk",
    "lookup_value_regex": "[0-9A-Za-z_-]{1,64}",
}
_by_digest: dict[str, Any] = {
    "lookup_field": "digest",
    "lookup_url_kwarg": "pk",
    "lookup_value_regex": "[0-9a-f]{1,32}",
}
# With or without the last slash: a redirect would turn a POST into a GET.
_router = SimpleRouter()
_router.trailing_slash = "/?"
for _name, _view in (
    ("organizations", viewset_of(organizations.ORGANIZATIONS)),
    ("projects", viewset_of(organizations.PROJECTS)),
    (
        "users",
        viewset_of(users.USERS, me=me),
    ),
    ("memberships", viewset_of(users.MEMBERSHIPS)),
    ("invitations", viewset_of(organizations.INVITATIONS)),
    ("keys", viewset_of(keys.KEYS)),
    ("limits", viewset_of(limits.LIMITS)),
    ("model-weights", viewset_of(limits.MODEL_WEIGHTS)),
    ("quotas", viewset_of(limits.QUOTAS)),
    ("alerts", viewset_of(alerts.ALERTS)),
    ("webhooks", viewset_of(alerts.WEBHOOKS)),
    ("refusals", viewset_of(records.REFUSALS)),
    ("quarantine", viewset_of(records.QUARANTINE, **_by_digest)),
    ("captures", viewset_of(records.CAPTURES, **_by_request_id)),
    ("audit", viewset_of(records.AUDIT, verify=verify, query={"verify": [records.VerdictQuery]})),
):
    _router.register(_name, _view, basename=f"api-{_name}")

urlpatterns: list[URLPattern | URLResolver] = [
    *_router.urls,
    re_path("^usage/?$", Usage.as_view(), name="api-usage"),
    re_path("^usage/export/?$", UsageExport.as_view(), name="api-usage-export"),
    path("schema/", SpectacularAPIView.as_view(), name="api-schema"),
]
