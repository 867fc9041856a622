"""How often somebody may try to sign in under a name or from an address. Allauth counts; what it
leaves out is how long the door stays closed, and how it is opened before."""

from __future__ import annotations

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
    """What passwords are counted by. Without the request's host, which allauth counts apart: a
    server that listens under any name would let each made-up name try anew."""
    return str(username).lower()


def code_key(user: User) -> str:
    """What allauth counts codes of second factors by."""
    return f"mfa-auth-user-{user.pk}"


def too_many(request: HttpRequest, key: str) -> ValidationError:
    """The refusal, with how long to wait."""
    wait_s = max(
        (_wait_s(place, rate) for place, rate in _counters(request, key)), default=_MINUTE_S
    )
    num_minutes = max(1, math.ceil(wait_s / _MINUTE_S))
    wait = "a minute" if num_minutes == 1 else f"{num_minutes} minutes"
    return ValidationError(f"Too many failed login attempts. Try again in {wait}.", code=TOO_MANY)


def forget(user: User) -> None:
    """Open the door that wrong passwords have closed for this name: there is a new one. What was
    tried from an address goes on counting."""
    for place, rate in _counters(None, name_key(user.get_username())):
        if rate.per == "key":
            cache.delete(place)


def _counters(request: HttpRequest | None, key: str) -> Iterator[tuple[str, Rate]]:
    """Where attempts are counted: one row of the cache for each rate."""
    where = {"app": "allauth.account", "action": "login_failed"}
    for rate in get_rates(**where):
        if request is not None or rate.per == "key":
            yield get_cache_key(request, **where, rate=rate, key=key), rate


def _wait_s(place: str, rate: Rate) -> float:
    """Until one more is allowed. The newest attempt stands first."""
    attempts = cache.get(place, [])
    if len(attempts) < rate.amount:
        return 0.0
    opens_at: float = attempts[rate.amount - 1] + rate.duration
    return opens_at - time.time()
