"""Sign-ins in the audit log: who came in and how, who did not, and what changed about how they do.

    user.sign_in              with what: password, totp, recovery_codes, issuer, ...
    user.sign_in_failed       a wrong password or code, or an account that may not sign in
    user.locked_out           too many of these
    user.second_factor_on, second_factor_off, recovery_codes, recovery_code_used
    user.password
    user.link                 to whom the issuer knows by its address, and what that let go

Failures are many where somebody guesses: of each account there is one entry a minute for each
network that they come from, which counts those before it that have none. What was typed in for
a name is not told where nobody is called so: it may be a password in the wrong field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv6Address, ip_address
from typing import Any, Final

from allauth.account import signals as account
from allauth.account.internal.flows.login import get_authentication_records
from allauth.mfa import signals as mfa
from allauth.mfa.models import Authenticator
from django.core.cache import cache
from django.dispatch import receiver
from django.http import HttpRequest

from accounts.base.actors import Actor
from accounts.models import User
from accounts.services import audit
from accounts.services.middleware import actor_of, address_of
from accounts.signin import attempts

UNTOLD_S: Final = 60
_REMEMBERED_S: Final = 24 * 3600
_FAILED: Final = "sign_in_failed"
_NOBODY: Final = "unknown account"
_NAMES: Final = {"socialaccount": "issuer"}
_IPV6_NETWORK_BITS: Final = 64  # what one subscriber has for themselves


def failed(request: HttpRequest, user: User | None, step: str) -> None:
    """Somebody has not come in as this user, or as one whom nobody knows. `step`: at what."""
    _tell_seldom(_FAILED, request, user, {"at": step})


def locked_out(request: HttpRequest, user: User | None) -> None:
    """Nobody comes in as this user, or from there, for a time."""
    _tell_seldom("locked_out", request, user, {})


def linked(request: HttpRequest, user: User, forgotten: Sequence[str]) -> None:
    """Somebody has got this user's account by its address. `forgotten`: what let people in."""
    by = Actor(user.pk, user.get_username(), address_of(request))
    audit.record("link", user, after={"by": "e-mail", "forgotten": list(forgotten)}, by=by)


def named(username: object) -> User | None:
    """The user whose sign-ins are counted under this name."""
    return User.objects.filter(username__iexact=str(username)).first()


def _tell_seldom(
    action: str, request: HttpRequest, user: User | None, more: Mapping[str, str]
) -> None:
    key = _key(action, request, user)
    # The lock of the log is also that of the count.
    with audit.writing():
        num_untold = cache.get(key, 0) + 1
        if not cache.add(f"{key}:told", 1, timeout=UNTOLD_S):
            cache.set(key, num_untold, timeout=_REMEMBERED_S)
            return
        cache.delete(key)
        target = User(username=_NOBODY) if user is None else user
        audit.record(
            action,
            target,
            after={**more, "num_times": num_untold},
            target_id="" if user is None else user.pk,
            by=Actor(None, "anonymous", address_of(request)),
        )


def _key(action: str, request: HttpRequest, user: User | None) -> str:
    return f"vinery.{action}:{user.pk if user else ''}:{_network_of(request)}"


def _network_of(request: HttpRequest) -> str:
    address = address_of(request) or ""
    if not address or not isinstance(ip := ip_address(address), IPv6Address):
        return address
    return f"{int(ip) >> (ip.max_prefixlen - _IPV6_NETWORK_BITS):x}"


# -- What allauth tells


@receiver(account.user_logged_in)
def _signed_in(request: HttpRequest, user: User, **_: Any) -> None:
    steps = get_authentication_records(request, user)
    used = [step.get("type") or _NAMES.get(step["method"], step["method"]) for step in steps]
    key = _key(_FAILED, request, user)
    with audit.writing():
        num_untold = cache.get(key, 0)
        cache.delete(key)
        told = {"num_failed_before": num_untold} if num_untold else {}
        by = Actor(user.pk, user.get_username(), address_of(request))
        audit.record("sign_in", user, after={"with": used, **told}, by=by)


@receiver(mfa.authentication_failed)
def _code_was_wrong(request: HttpRequest, user: User, **_: Any) -> None:
    failed(request, user, "second factor")


@receiver(mfa.authenticator_added)
@receiver(mfa.authenticator_reset)
def _factor_was_set(
    request: HttpRequest, user: User, authenticator: Authenticator, **_: Any
) -> None:
    is_codes = authenticator.type == Authenticator.Type.RECOVERY_CODES
    action = "recovery_codes" if is_codes else "second_factor_on"
    audit.record(action, user, by=actor_of(request))


@receiver(mfa.authenticator_removed)
def _factor_was_removed(
    request: HttpRequest, user: User, authenticator: Authenticator, **_: Any
) -> None:
    # Recovery codes go with the factor that they stand in for.
    if authenticator.type != Authenticator.Type.RECOVERY_CODES:
        audit.record("second_factor_off", user, by=actor_of(request))


@receiver(mfa.authenticator_used)
def _factor_was_used(
    request: HttpRequest, user: User, authenticator: Authenticator, **_: Any
) -> None:
    if authenticator.type == Authenticator.Type.RECOVERY_CODES:
        authenticator.refresh_from_db()  # allauth marks the code in a copy of the row
        num_left = len(authenticator.wrap().get_unused_codes())
        by = Actor(user.pk, user.get_username(), address_of(request))
        audit.record("recovery_code_used", user, after={"num_left": num_left}, by=by)


@receiver(account.password_changed)
@receiver(account.password_set)
def _password_was_changed(request: HttpRequest, user: User, **_: Any) -> None:
    audit.record("password", user, by=actor_of(request))


@receiver(account.password_reset)
def _password_was_reset(request: HttpRequest, user: User, **_: Any) -> None:
    audit.record("password", user, after={"by": "e-mail"}, by=actor_of(request))
    attempts.forget(user)
