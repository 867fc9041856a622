"""Django's test clients, taught that a session's cookie is signed.

`login`, `force_login` and `session` write and read a session's key as the cookie, past all
middleware. What comes from a response is signed already.
"""

from typing import Any

from django.conf import settings
from django.contrib.sessions.backends.db import SessionStore
from django.http import HttpRequest
from django.test.client import ClientMixin

from vinery_accounts.signin.sessions import cookie_of, key_of


def teach_clients() -> None:
    """All of them, from now on."""
    mixin: Any = ClientMixin
    set_login_cookies = mixin._set_login_cookies

    def sign_login_cookies(client: Any, request: HttpRequest) -> None:
        set_login_cookies(client, request)
        _sign(client, request.session)

    mixin._set_login_cookies = sign_login_cookies
    mixin.session = property(_session)


def _session(client: Any) -> SessionStore:
    cookie = client.cookies.get(settings.SESSION_COOKIE_NAME)
    if cookie:
        return SessionStore(key_of(cookie.value))
    session = SessionStore()
    session.save()
    _sign(client, session)
    return session


def _sign(client: Any, session: Any) -> None:
    client.cookies[settings.SESSION_COOKIE_NAME] = cookie_of(session.session_key)
