"""Who calls the management API: a person with a session, or a key with the right scope."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from accounts.base.actors import Actor
from accounts.base.errors import KeyRefused, Refusal
from accounts.base.networks import read_networks
from accounts.keys.grants import Grants
from accounts.keys.lifecycle import find_key
from accounts.models import ApiKey, KeyUse, Scope, User
from accounts.services.middleware import ACTOR, address_of

_BETWEEN_MARKS: Final = timedelta(minutes=1)


class KeyAuthentication(BaseAuthentication):
    """`Authorization: Bearer <key>`. A request with this header never uses its session, so
    that no cookie helps out where a key was meant."""

    def authenticate(self, request: Request) -> tuple[User, ApiKey] | None:
        """The owner and the key; None without the header. Raises `KeyRefused` for a key that
        opens no door, and `NotAllowed` for one that is used from elsewhere."""
        header = get_authorization_header(request)
        if not header:
            return None
        key = find_key(_secret_in(header))
        address = address_of(request._request)
        grants_of(key).check_address(address)
        name = f"{key.owner.get_username()}, key {key}"
        setattr(request._request, ACTOR, Actor(key.owner_id, name, address))
        _mark_used(key, address)
        return key.owner, key

    def authenticate_header(self, request: Request) -> str:
        """Makes answers to strangers 401 instead of 403."""
        return "Bearer"


class MayManage(BasePermission):
    """A person who is signed in, or a key with the manage scope. Views that keys with another
    scope may read too name it as `read_scope`."""

    message = "Sign in, or send a key with the scope `manage`."

    def has_permission(self, request: Request, view: Any) -> bool:
        """Raises `NotAllowed` for a key that lacks the scope."""
        key = request.auth
        if isinstance(key, ApiKey):
            read_scope = getattr(view, "read_scope", None)
            may_read = request.method in SAFE_METHODS and read_scope in key.scopes
            if not may_read:
                grants_of(key).check_scope(Scope.MANAGE)
        return bool(request.user and request.user.is_authenticated)


class KeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the OpenAPI document tells of keys."""

    target_class = KeyAuthentication
    name = "key"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        """OpenAPI's words for a bearer token."""
        return {
            "type": "http",
            "scheme": "bearer",
            "description": "An API key with the scope `manage`.",
        }


def grants_of(key: ApiKey) -> Grants:
    """What the key may be used for."""
    networks = read_networks(key.allowed_networks) if key.allowed_networks else None
    return Grants(frozenset(key.scopes), networks=networks)


def _secret_in(header: bytes) -> str:
    scheme, _, secret = header.decode("latin-1").partition(" ")
    if scheme.lower() != "bearer":
        raise KeyRefused(Refusal.MALFORMED)
    return secret.strip()


def _mark_used(key: ApiKey, address: str | None) -> None:
    """Once a minute: a script that lists ten thousand rows writes a few times."""
    now = timezone.now()
    if key.last_used_at is None or key.last_used_at < now - _BETWEEN_MARKS:
        ApiKey.objects.mark_used([KeyUse(key.pk, now, address, key.last_used_model)])
