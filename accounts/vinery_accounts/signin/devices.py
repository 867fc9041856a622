"""Known devices: browsers in which a user has signed in completely.

Any client can send wrong passwords for a name. So a known device has a counter of its own, which
strangers cannot use up. The browser keeps a signed cookie for each user. It names the user, the
device and the password, so that it ends with the password; and it ends after 90 days.
"""

import hmac
import secrets
from typing import Final

from allauth.account.signals import user_logged_in
from django.conf import settings
from django.core.signing import BadSignature, TimestampSigner
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse

from vinery_accounts.models import User

_SALT: Final = "vinery known devices"
_LIFE_S: Final = 90 * 24 * 3600
_PATH: Final = "/accounts/"


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
            path=_PATH,
            secure=settings.SESSION_COOKIE_SECURE,
            httponly=True,
            samesite="Lax",
        )
    return response


def _name(user: User) -> str:
    return f"known_device_{user.pk}"


def _owner(user: User) -> str:
    return f"{user.pk}.{user.get_session_auth_hash()}"
