"""Sign-ins in the audit log.

    user.sign_in              with the methods: password, totp, recovery_codes, issuer, ...
    user.sign_in_failed       a wrong password or code, or an account that may not sign in
    user.locked_out           too many failures
    user.second_factor_on, second_factor_off, recovery_codes, recovery_code_used
    user.password
    user.link                 to a user of the issuer by the address, with what was removed

A client that guesses passwords causes many failures. So each account has at most one entry a minute
for each network, with the number of failures since the last entry. An unknown name is not logged:
it may be a password in the wrong field."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from allauth.account import signals as account
from allauth.account.internal.flows.login import get_authentication_records
from allauth.core.internal.ratelimit import truncate_ip
from allauth.mfa import signals as mfa
from allauth.mfa.models import Authenticator
from django.core.cache import cache
from django.dispatch import receiver
from django.http import HttpRequest

from vinery_accounts.access import audit
from vinery_accounts.base.actors import Actor, actor_of, address_of
from vinery_accounts.models import User
from vinery_accounts.signin import attempts

QUIET_S: Final = 60
_REMEMBERED_S: Final = 24 * 3600
_FAILED: Final = "sign_in_failed"
_NAMES: Final = {"socialaccount": "issuer"}


def failed(request: HttpRequest, user: User | None, step: str) -> None:
    """Log a failed sign-in of this user, or of an unknown name. `step` names what failed."""
    _rarely(_FAILED, request, user, {"at": step})


def locked_out(request: HttpRequest, user: User | None) -> None:
    _rarely("locked_out", request, user, {})


def linked(request: HttpRequest, user: User, forgotten: Sequence[str]) -> None:
    by = Actor(user.pk, user.get_username(), address_of(request))
    audit.record("link", user, after={"by": "e-mail", "forgotten": list(forgotten)}, by=by)


def named(username: object) -> User | None:
    return User.objects.filter(username__iexact=str(username)).first()


def _rarely(action: str, request: HttpRequest, user: User | None, more: Mapping[str, str]) -> None:
    key = _key(action, request, user)
    # The lock of the audit log also protects the count.
    with audit.writing():
        num_unlogged = cache.get(key, 0) + 1
        if not cache.add(f"{key}:logged", 1, timeout=QUIET_S):
            cache.set(key, num_unlogged, timeout=_REMEMBERED_S)
            return
        cache.delete(key)
        audit.record(
            action,
            User(username="unknown account") if user is None else user,
            after={**more, "num_times": num_unlogged},
            target_id="" if user is None else user.pk,
            by=Actor(None, "anonymous", address_of(request)),
        )


def _key(action: str, request: HttpRequest, user: User | None) -> str:
    network = truncate_ip(address_of(request) or "")
    return f"vinery.{action}:{user.pk if user else ''}:{network}"


# -- Receivers of allauth's signals


@receiver(account.user_logged_in)
def _signed_in(request: HttpRequest, user: User, **_: Any) -> None:
    steps = get_authentication_records(request, user)
    used = [step.get("type") or _NAMES.get(step["method"], step["method"]) for step in steps]
    key = _key(_FAILED, request, user)
    with audit.writing():
        num_unlogged = cache.get(key, 0)
        cache.delete(key)
        failures = {"num_failed_before": num_unlogged} if num_unlogged else {}
        by = Actor(user.pk, user.get_username(), address_of(request))
        audit.record("sign_in", user, after={"with": used, **failures}, by=by)


@receiver(mfa.authentication_failed)
def _code_was_wrong(request: HttpRequest, user: User, **_: Any) -> None:
    failed(request, user, "second factor")


@receiver(mfa.authenticator_added)
@receiver(mfa.authenticator_reset)
def _factor_set(request: HttpRequest, user: User, authenticator: Authenticator, **_: Any) -> None:
    is_codes = authenticator.type == Authenticator.Type.RECOVERY_CODES
    audit.record("recovery_codes" if is_codes else "second_factor_on", user, by=actor_of(request))


@receiver(mfa.authenticator_removed)
def _factor_gone(request: HttpRequest, user: User, authenticator: Authenticator, **_: Any) -> None:
    # Recovery codes are removed with their factor.
    if authenticator.type != Authenticator.Type.RECOVERY_CODES:
        audit.record("second_factor_off", user, by=actor_of(request))


@receiver(mfa.authenticator_used)
def _factor_used(request: HttpRequest, user: User, authenticator: Authenticator, **_: Any) -> None:
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
    audit.record("password", user, after={"by": "link"}, by=actor_of(request))
    attempts.forget(user)
