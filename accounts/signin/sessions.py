"""Sessions of which a dump of the database is no use: neither to come in, nor to read.

Django's cookie is the primary key of the session's row, and allauth lists it once more. Here
the cookie carries that key signed, and the row's content is encrypted: for a while it holds the
secret of a second factor that is being set up, or the key of a link to reset a password. Both
are done with Django's key, which is not in the database. A cookie or a row of another making is
as none: its owner signs in again.
"""

from __future__ import annotations

import json
from typing import Any, Final

from django.conf import settings
from django.contrib.sessions.middleware import SessionMiddleware
from django.core.signing import BadSignature, Signer
from django.http import HttpRequest, HttpResponse

from accounts.base.encryption import cipher

_SALT: Final = "vinery session cookies"
_PURPOSE: Final = b"vinery sessions"


class SignedSessionMiddleware(SessionMiddleware):
    """Django's own, with another cookie. It serves threads and event loops as that does."""

    def process_request(self, request: HttpRequest) -> None:
        """Find the session of the request."""
        cookie = request.COOKIES.get(settings.SESSION_COOKIE_NAME, "")
        request.session = self.SessionStore(key_of(cookie))

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """Save the session, and sign the key that Django gives to the browser."""
        answer: HttpResponse = super().process_response(request, response)
        cookie = answer.cookies.get(settings.SESSION_COOKIE_NAME)
        if cookie is not None and cookie.value:  # empty: it is being deleted
            # Its age, path and flags stay.
            answer.cookies[settings.SESSION_COOKIE_NAME] = cookie_of(cookie.value)
        return answer


def cookie_of(session_key: str) -> str:
    """What the browser gets."""
    return Signer(salt=_SALT).sign(session_key)


def key_of(cookie: str) -> str | None:
    """The session's key; None for a cookie that was not signed here."""
    try:
        return Signer(salt=_SALT).unsign(cookie)
    except BadSignature:
        return None


class SealedSerializer:
    """What `SESSION_SERIALIZER` names. A session that it cannot open is an empty one to Django."""

    def dumps(self, session: dict[str, Any]) -> bytes:
        """For the database. Raises TypeError for what JSON cannot hold."""
        return cipher(_PURPOSE).encrypt(json.dumps(session, separators=(",", ":")).encode())

    def loads(self, sealed: bytes) -> dict[str, Any]:
        """From the database. Raises `cryptography.fernet.InvalidToken`."""
        session: dict[str, Any] = json.loads(cipher(_PURPOSE).decrypt(sealed))
        return session
