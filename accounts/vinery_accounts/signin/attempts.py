"""Rate limits of sign-in, by name and by address.

Allauth counts the attempts. This module chooses the counter, and adds how long to wait and a reset
after a new password. Wrong passwords of strangers must not lock a user out for ever:

    a known device         has a counter of its own, and its network does not count
    a second factor        protects the account also from a guessed password, so wrong passwords
                           count for each network alone
    all others             one counter for each name, from any network"""

import hmac
import math
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from allauth.account.signals import user_logged_in
from allauth.core.internal import ratelimit
from allauth.mfa.models import Authenticator
from django.conf import settings
from django.core.cache import cache
from django.core.exceptions import ValidationError
from django.core.signing import BadSignature, TimestampSigner
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse

from vinery_accounts.base.actors import address_of
from vinery_accounts.models import User

TOO_MANY: Final = "too_many_login_attempts"
# The names of the rates in `ACCOUNT_RATE_LIMITS`.
_USUAL: Final = "login_failed"
_APP: Final = "allauth.account"
_MINUTE_S: Final = 60


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
    """Count one attempt; None if there were too many."""
    return ratelimit.consume(request, app=_APP, action=counter.action, key=counter.key)


def name_key(username: object) -> str:
    """The key under which wrong passwords for a name are counted. It has no host, unlike allauth's
    key: a client could send another Host header for each attempt."""
    return str(username).lower()


def code_key(user: User) -> str:
    return f"mfa-auth-user-{user.pk}"


def has_second_factor(user: User) -> bool:
    kinds = (Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN)
    return bool(Authenticator.objects.filter(user=user, type__in=kinds).exists())


def too_many(request: HttpRequest, counter: Counter) -> ValidationError:
    wait_s = max(
        (_wait_s(cache_key, rate) for cache_key, rate in _rates(request, counter)),
        default=_MINUTE_S,
    )
    num_minutes = max(1, math.ceil(wait_s / _MINUTE_S))
    wait = "a minute" if num_minutes == 1 else f"{num_minutes} minutes"
    return ValidationError(f"Too many failed login attempts. Try again in {wait}.", code=TOO_MANY)


def forget(user: User) -> None:
    """Reset the count of wrong passwords for this name. Counts of addresses stay."""
    for cache_key, _ in _rates(None, Counter(name_key(user.get_username()))):
        cache.delete(cache_key)


def _rates(request: HttpRequest | None, counter: Counter) -> Iterator[tuple[str, ratelimit.Rate]]:
    action = {"app": _APP, "action": counter.action}
    for rate in ratelimit.get_rates(**action):
        if request is not None or rate.per == "key":
            yield ratelimit.get_cache_key(request, **action, rate=rate, key=counter.key), rate


def _wait_s(cache_key: str, rate: ratelimit.Rate) -> float:
    """Seconds until one more attempt is allowed. The newest attempt is the first in the cache."""
    attempts: list[float] = cache.get(cache_key, [])
    is_open = len(attempts) < rate.amount
    return 0.0 if is_open else attempts[rate.amount - 1] + rate.duration - time.time()


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
