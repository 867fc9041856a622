"""Rate limits of sign-in, by name and by address.

Allauth counts the attempts. This module chooses the counter, and adds a reset after a new
password. Wrong passwords of strangers must not lock a user out for ever:

    a known device         has a counter of its own, and its network does not count
    a second factor        protects the account also from a guessed password, so wrong passwords
                           count for each network alone
    all others             one counter for each name, from any network"""

import hmac
import secrets
from dataclasses import dataclass
from typing import Final

from allauth.account.signals import user_logged_in
from allauth.core.internal import ratelimit
from allauth.mfa.models import Authenticator
from django.conf import settings
from django.core.cache import cache
from django.core.signing import BadSignature, TimestampSigner
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse

from vinery_accounts.base.actors import address_of
from vinery_accounts.models import User

TOO_MANY: Final = "too_many_login_attempts"
# The names of the rates in `ACCOUNT_RATE_LIMITS`.
_USUAL: Final = "login_failed"
_APP: Final = "allauth.account"


@dataclass(frozen=True, slots=True)
class Counter:
    """Under what wrong passwords are counted, and by which rates."""

    key: str
    action: str = _USUAL


def counter_of(request: HttpRequest, username: object, user: User | None) -> Counter:
    if user is None:
        return Counter(name_key(username))
    # A new password begins with new counters.
    own = f"{user.pk}:{user.get_session_auth_hash()}"
    if (device := known_device(request, user)) is not None:
        return Counter(f"device:{own}:{device}", "login_failed_on_known_device")
    if has_second_factor(user):
        return Counter(f"network:{own}:{ratelimit.truncate_ip(address_of(request) or '')}")
    return Counter(name_key(username))


def consume(request: HttpRequest, counter: Counter) -> ratelimit.RateLimitUsage | None:
    return ratelimit.consume(request, app=_APP, action=counter.action, key=counter.key)


def name_key(username: object) -> str:
    """The key under which wrong passwords for a name are counted. It has no host, unlike allauth's
    key: a client could send another Host header for each attempt."""
    return str(username).lower()


def has_second_factor(user: User) -> bool:
    kinds = (Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN)
    return bool(Authenticator.objects.filter(user=user, type__in=kinds).exists())


def forget(user: User) -> None:
    """Reset the count of wrong passwords for this name. Counts of addresses stay."""
    named, key = {"app": _APP, "action": _USUAL}, name_key(user.get_username())
    for rate in ratelimit.get_rates(**named):
        if rate.per == "key":
            cache.delete(ratelimit.get_cache_key(None, **named, rate=rate, key=key))


_SALT: Final = "vinery known devices"
_LIFE_S: Final = 90 * 24 * 3600


def known_device(request: HttpRequest, user: User) -> str | None:
    """The id of the device, if this user has signed in there; None otherwise."""
    cookie = request.COOKIES.get(_name(user), "")
    try:
        signed = TimestampSigner(salt=_SALT).unsign(cookie, max_age=_LIFE_S)
    except BadSignature:
        return None
    device, _, owner = signed.partition(".")
    return device if hmac.compare_digest(owner, _owner(user)) else None


@receiver(user_logged_in)
def _signed_in(request: HttpRequest, user: User, **_: object) -> None:
    request.META["vinery.signed_in"] = user


def remember(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    user = request.META.pop("vinery.signed_in", None)
    if user is not None:
        device = known_device(request, user) or secrets.token_hex(16)
        response.set_cookie(
            _name(user),
            TimestampSigner(salt=_SALT).sign(f"{device}.{_owner(user)}"),
            max_age=_LIFE_S,
            path="/accounts/",
            secure=settings.SESSION_COOKIE_SECURE,
            httponly=True,
            samesite="Lax",
        )
    return response


def _name(user: User) -> str:
    return f"known_device_{user.pk}"


def _owner(user: User) -> str:
    return f"{user.pk}.{user.get_session_auth_hash()}"
