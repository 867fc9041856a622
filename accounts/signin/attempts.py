"""Rate limits of sign-in, by name and by address.

Allauth counts the attempts. This adds how long to wait, and a reset after a new password.
"""

import math
import time
from collections.abc import Iterator
from typing import Final

from allauth.core.internal.ratelimit import Rate, get_cache_key, get_rates
from django.core.cache import cache
from django.core.exceptions import ValidationError
from django.http import HttpRequest

from accounts.models import User

TOO_MANY: Final = "too_many_login_attempts"
_MINUTE_S: Final = 60


def name_key(username: object) -> str:
    """The key under which wrong passwords for a name are counted.

    It has no host, unlike allauth's key: a client could send another Host header for each attempt.
    """
    return str(username).lower()


def code_key(user: User) -> str:
    """The key under which allauth counts wrong codes of second factors."""
    return f"mfa-auth-user-{user.pk}"


def too_many(request: HttpRequest, key: str) -> ValidationError:
    """The error of a client that must wait, with the number of minutes."""
    wait_s = max(
        (_wait_s(cache_key, rate) for cache_key, rate in _counters(request, key)), default=_MINUTE_S
    )
    num_minutes = max(1, math.ceil(wait_s / _MINUTE_S))
    wait = "a minute" if num_minutes == 1 else f"{num_minutes} minutes"
    return ValidationError(f"Too many failed login attempts. Try again in {wait}.", code=TOO_MANY)


def forget(user: User) -> None:
    """Reset the count of wrong passwords for this name. Counts of addresses stay."""
    for cache_key, rate in _counters(None, name_key(user.get_username())):
        if rate.per == "key":
            cache.delete(cache_key)


def _counters(request: HttpRequest | None, key: str) -> Iterator[tuple[str, Rate]]:
    """The cache key and the rate of each counter; without a request only those of names."""
    action = {"app": "allauth.account", "action": "login_failed"}
    for rate in get_rates(**action):
        if request is not None or rate.per == "key":
            yield get_cache_key(request, **action, rate=rate, key=key), rate


def _wait_s(cache_key: str, rate: Rate) -> float:
    """Seconds until one more attempt is allowed. The newest attempt is the first in the cache."""
    attempts = cache.get(cache_key, [])
    if len(attempts) < rate.amount:
        return 0.0
    opens_at: float = attempts[rate.amount - 1] + rate.duration
    return opens_at - time.time()
