"""The callers of the management API: users with a session, and keys with the right scope."""

from datetime import timedelta
from typing import Any

from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from vinery_accounts.base.actors import ACTOR, Actor, address_of
from vinery_accounts.base.errors import KeyRefused, Refusal
from vinery_accounts.keys.grants import Grants
from vinery_accounts.keys.lifecycle import find_key
from vinery_accounts.models import ApiKey, KeyUse, Scope, User


class KeyAuthentication(BaseAuthentication):
    """Authentication by `Authorization: Bearer <key>`. A request with this header never uses its
    session: a cookie must not replace a key that is refused."""

    def authenticate(self, request: Request) -> tuple[User, ApiKey] | None:
        """Return the owner and the key; None without the header. Raises `KeyRefused` for a key that
        does not work, and `NotAllowed` for a caller outside of the key's networks."""
        header = get_authorization_header(request)
        if not header:
            return None
        scheme, _, secret = header.decode("latin-1").partition(" ")
        if scheme.lower() != "bearer":
            raise KeyRefused(Refusal.MALFORMED)
        key, now = find_key(secret.strip()), timezone.now()
        address = address_of(request._request)
        grants_of(key).check_address(address)
        kind = "admin key" if key.is_for_administration else "key"
        name = f"{key.owner.get_username()}, {kind} {key}"
        setattr(request._request, ACTOR, Actor(key.owner_id, name, address))
        # At most once a minute: a script that lists many pages writes rarely.
        if key.last_used_at is None or key.last_used_at < now - timedelta(minutes=1):
            ApiKey.objects.mark_used([KeyUse(key.pk, now, address, key.last_used_model)])
        return key.owner, key

    def authenticate_header(self, request: Request) -> str:
        """Return the scheme: with it, REST framework answers 401 instead of 403."""
        return "Bearer"


class MayManage(BasePermission):
    """Permission for signed-in users and for keys with the scope `manage` or `admin`. Keys with
    the `read_scope` of the view may read."""

    message = "Sign in, or send a key with the scope `manage` or `admin`."

    def has_permission(self, request: Request, view: Any) -> bool:
        """Return whether the caller is known. Raises `NotAllowed` for a key without the scope."""
        key = request.auth
        if isinstance(key, ApiKey):
            read_scope = getattr(view, "read_scope", None)
            may_read = request.method in SAFE_METHODS and read_scope in key.scopes
            if not (may_read or key.is_for_administration):
                grants_of(key).check_scope(Scope.MANAGE)
        return bool(request.user and request.user.is_authenticated)


class KeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Keys in the OpenAPI document."""

    target_class = KeyAuthentication
    name = "key"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {
            "type": "http",
            "scheme": "bearer",
            "description": "An API key with the scope `admin` for the whole platform, or with "
            "`manage` for its project.",
        }


def grants_of(key: ApiKey) -> Grants:
    return Grants(frozenset(key.scopes), networks=tuple(key.allowed_networks) or None)
