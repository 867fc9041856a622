"""The URLs under `/api/`."""

from dataclasses import asdict
from typing import Any, Final

from django.urls import URLPattern, URLResolver, path, re_path
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from vinery_accounts.access import audit as audit_log
from vinery_accounts.api.views import ResourceViewSet, Usage, UsageExport, urls_of
from vinery_accounts.models import User
from vinery_accounts.resources import records, users
from vinery_accounts.resources.base import registered, require_administrator


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


_MORE: Final[dict[str, dict[str, Any]]] = {
    "users": {"me": me},
    "audit": {"verify": verify, "query": {"verify": [records.VerdictQuery]}},
}
urlpatterns: list[URLPattern | URLResolver] = [
    *urls_of(registered(), _MORE),
    re_path("^usage/?$", Usage.as_view(), name="api-usage"),
    re_path("^usage/export/?$", UsageExport.as_view(), name="api-usage-export"),
    path("schema/", SpectacularAPIView.as_view(), name="api-schema"),
]
