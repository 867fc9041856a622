"""Sessions that a dump of the database does not reveal.

Django's session cookie is the primary key of the session's row. Here the cookie has that key
signed, and the row's content is encrypted, because it may hold the secret of a second factor or the
key of a password reset. Both use Django's SECRET_KEY, which is not in the database. An unsigned
cookie or an unencrypted row is ignored: the user signs in again."""

import json
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from django.conf import settings
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.sessions.middleware import SessionMiddleware
from django.core.signing import BadSignature, Signer
from django.http import HttpRequest, HttpResponse

from vinery_accounts.base.encryption import cipher

_SALT: Final = "vinery session cookies"
_PURPOSE: Final = b"vinery sessions"


class SignedSessionMiddleware(SessionMiddleware):
    """Django's middleware, with a signed cookie."""

    def process_request(self, request: HttpRequest) -> None:
        cookie = request.COOKIES.get(settings.SESSION_COOKIE_NAME, "")
        request.session = self.SessionStore(key_of(cookie))

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        signed: HttpResponse = super().process_response(request, response)
        cookie = signed.cookies.get(settings.SESSION_COOKIE_NAME)
        if cookie is not None and cookie.value:  # empty: the cookie is deleted
            # The cookie keeps its age, path and flags.
            signed.cookies[settings.SESSION_COOKIE_NAME] = cookie_of(cookie.value)
        return signed


def cookie_of(session_key: str) -> str:
    return Signer(salt=_SALT).sign(session_key)


def key_of(cookie: str) -> str | None:
    try:
        return Signer(salt=_SALT).unsign(cookie)
    except BadSignature:
        return None


class EncryptedSerializer:
    """The serializer that `SESSION_SERIALIZER` names. An unreadable session counts as empty."""

    def dumps(self, session: dict[str, Any]) -> bytes:
        return cipher(_PURPOSE).encrypt(json.dumps(session, separators=(",", ":")).encode())

    def loads(self, encrypted: bytes) -> dict[str, Any]:
        session: dict[str, Any] = json.loads(cipher(_PURPOSE).decrypt(encrypted))
        return session


# A quarter of a core that others want as well: a sign-in beside a busy engine takes seconds.
_NICENESS: Final = 5
_TURN: Final = threading.Lock()


class PatientHasher(PBKDF2PasswordHasher):
    """Django's hasher in a separate thread: a thread cannot raise its priority again. The hasher
    computes outside Python's global lock, so no other thread waits for it."""

    def encode(self, password: str, salt: str, iterations: int | None = None) -> str:
        with _TURN, ThreadPoolExecutor(1, "hashing", initializer=_lower_priority) as thread:
            return thread.submit(super().encode, password, salt, iterations).result()


def _lower_priority() -> None:
    if sys.platform == "linux":  # where each thread has a priority
        thread = threading.get_native_id()
        # A process that was started with `nice` may have more. Only root may lower it.
        niceness = max(_NICENESS, os.getpriority(os.PRIO_PROCESS, thread))
        os.setpriority(os.PRIO_PROCESS, thread, niceness)
