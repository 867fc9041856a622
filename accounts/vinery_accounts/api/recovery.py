"""What an administrator does for a user who lost the password or the phone."""

from typing import Any

from django.core.exceptions import PermissionDenied
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from vinery_accounts.api.views import ResourceViewSet
from vinery_accounts.models import User
from vinery_accounts.resources.base import Conflict, require
from vinery_accounts.resources.fields import EmptySerializer, StrictSerializer
from vinery_accounts.services import changes
from vinery_accounts.services.access import Action
from vinery_accounts.signin.factors import reset_second_factor, set_password


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
