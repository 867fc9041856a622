"""Allauth's questions about accounts: nobody signs up by themselves, service accounts stay out,
and links in e-mail lead to where this server really is."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from allauth.account.adapter import DefaultAccountAdapter
from django.conf import settings
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse

from accounts.models import User
from accounts.signin import attempts, journal
from accounts.signin.home import home_of
from accounts.signin.people import may_sign_in


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]
    """What `ACCOUNT_ADAPTER` names."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Never: administrators make accounts, or the issuer does (`oidc/adapter.py`)."""
        return False

    def get_login_redirect_url(self, request: HttpRequest) -> str:
        """Where a person goes who came for no page."""
        return home_of(request.user)

    def pre_login(self, request: HttpRequest, user: User, **hints: Any) -> HttpResponse | None:
        """The last question before a session, whatever way the person came."""
        if not may_sign_in(user):
            journal.failed(request, user, "account that may not sign in")
            refusal: HttpResponse = self.respond_user_inactive(request, user)
            return refusal
        response: HttpResponse | None = super().pre_login(request, user, **hints)
        return response

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """Raises `ValidationError` after too many wrong passwords."""
        username = credentials.get("username", "")
        try:
            super().pre_authenticate(request, **credentials)
        except ValidationError:
            journal.locked_out(request, journal.named(username))
            raise attempts.too_many(request, attempts.name_key(username)) from None

    def authentication_failed(self, request: HttpRequest, **credentials: Any) -> None:
        """A wrong password, also before something that a stolen session should not do."""
        journal.failed(request, journal.named(credentials.get("username", "")), "password")

    def send_password_reset_mail(self, user: User, email: str, context: dict[str, Any]) -> None:
        """Only to people who have a password here: one who comes through the issuer would get a
        door that the issuer cannot close, and a service account a first one."""
        if may_sign_in(user) and user.has_usable_password():
            super().send_password_reset_mail(user, email, context)

    def get_reset_password_from_key_url(self, key: str) -> str:
        """Under the public URL, if there is one: a request's Host header is what its sender
        likes."""
        return public_url(super().get_reset_password_from_key_url(key))

    def format_email_subject(self, subject: str) -> str:
        """With our name, where allauth would put the request's host."""
        return f"Vinery: {subject}"

    def _get_login_attempts_cache_key(self, request: HttpRequest, **credentials: Any) -> str:
        """By what passwords are counted."""
        return attempts.name_key(credentials.get("username", ""))


def public_url(url: str) -> str:
    """The same path under VINERY_PUBLIC_URL, if that is set."""
    if not settings.VINERY_PUBLIC_URL:
        return url
    parts = urlsplit(url)
    query = f"?{parts.query}" if parts.query else ""
    return f"{settings.VINERY_PUBLIC_URL}{parts.path}{query}"
