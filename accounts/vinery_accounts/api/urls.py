"""The URLs under `/api/`."""

from dataclasses import asdict
from typing import Any

from django.core.exceptions import PermissionDenied
from django.urls import URLPattern, URLResolver, path, re_path
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter

from vinery_accounts.api.views import ResourceViewSet, Usage, UsageExport, viewset_of
from vinery_accounts.models import User
from vinery_accounts.resources import (
    alerts,
    invitations,
    keys,
    limits,
    organizations,
    records,
    users,
)
from vinery_accounts.resources.base import Conflict, require
from vinery_accounts.resources.fields import EmptySerializer, StrictSerializer
from vinery_accounts.services import audit as audit_log
from vinery_accounts.services import changes
from vinery_accounts.services.access import Action
from vinery_accounts.signin.recovery import reset_second_factor, set_password

# -- What an administrator does for a user who lost the password or the phone


class PasswordSerializer(StrictSerializer):
    """A new password."""

    password = serializers.CharField(
        required=False,
        max_length=4096,
        trim_whitespace=False,
        help_text="Without one, a random password is set.",
    )


class NewPasswordSerializer(StrictSerializer):
    """The password that was set."""

    password = serializers.CharField(help_text="Keep it now: it is not stored.")


@extend_schema(request=PasswordSerializer, responses=NewPasswordSerializer)
@action(detail=True, methods=["post"])
def password(self: ResourceViewSet, request: Request, pk: str) -> Response:
    """Give a user a new password. It ends the user's sessions, and lifts a lock-out. Only
    administrators of the platform may do this."""
    user = _user_to_recover(self)
    text = _read(self, PasswordSerializer).get("password") or changes.new_password()
    set_password(user, text)
    return Response({"password": text})


@extend_schema(request=None, responses={204: None})
@action(detail=True, methods=["post"])
def second_factor_off(self: ResourceViewSet, request: Request, pk: str) -> Response:
    """Remove the second factor and the recovery codes of a user who lost them. Only
    administrators of the platform may do this."""
    user = _user_to_recover(self)
    _read(self, EmptySerializer)
    if not reset_second_factor(user):
        raise Conflict(f"{user} has no second factor.")
    return Response(status=204)


def _user_to_recover(view: ResourceViewSet) -> User:
    """Return the user of the address. Raises `PermissionDenied`, also to an admin key for users
    that it may not change."""
    user: User = view.get_object()
    if not view.access.is_superuser:
        raise PermissionDenied("Only an administrator of the whole platform may do this.")
    require(view.access, Action.MANAGE, user)
    return user


def _read(view: ResourceViewSet, serializer: type[StrictSerializer]) -> dict[str, Any]:
    """Return the validated body. Raises `ValidationError`."""
    body = serializer(data=view.request.data)
    body.is_valid(raise_exception=True)
    return dict(body.validated_data)


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
    if not self.access.is_superuser:
        raise PermissionDenied("Only an administrator of the whole platform may do this.")
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
        viewset_of(users.USERS, me=me, password=password, second_factor_off=second_factor_off),
    ),
    ("memberships", viewset_of(users.MEMBERSHIPS)),
    ("invitations", viewset_of(invitations.INVITATIONS)),
    ("keys", viewset_of(keys.KEYS)),
    ("limits", viewset_of(limits.LIMITS)),
    ("model-weights", viewset_of(limits.MODEL_WEIGHTS)),
    ("quotas", viewset_of(limits.QUOTAS)),
    ("alerts", viewset_of(alerts.ALERTS)),
    ("key-reminders", viewset_of(alerts.KEY_REMINDERS)),
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
