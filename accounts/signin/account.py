"""Allauth's adapter for accounts: no sign-up, no service accounts, and links to our public URL."""

from __future__ import annotations

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse

from accounts.models import User
from accounts.signin import attempts, log
from accounts.signin.people import home_of, may_sign_in, public_url


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]
    """The adapter that `ACCOUNT_ADAPTER` names."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Never: administrators create accounts, or the issuer does (`oidc_adapter.py`)."""
        return False

    def get_login_redirect_url(self, request: HttpRequest) -> str:
        """The page after a sign-in that did not begin on another page."""
        return home_of(request.user)

    def pre_login(self, request: HttpRequest, user: User, **hints: Any) -> HttpResponse | None:
        """The last check before a session, for every way to sign in."""
        if not may_sign_in(user):
            log.failed(request, user, "account that may not sign in")
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
            log.locked_out(request, log.named(username))
            raise attempts.too_many(request, attempts.name_key(username)) from None

    def authentication_failed(self, request: HttpRequest, **credentials: Any) -> None:
        """Log a wrong password, at sign-in or at reauthentication."""
        log.failed(request, log.named(credentials.get("username", "")), "password")

    def send_password_reset_mail(self, user: User, email: str, context: dict[str, Any]) -> None:
        """Send it only to users with a password: the issuer could not revoke a new one."""
        if may_sign_in(user) and user.has_usable_password():
            super().send_password_reset_mail(user, email, context)

    def get_reset_password_from_key_url(self, key: str) -> str:
        """A link under the public URL, if there is one: clients choose the Host header."""
        return public_url(super().get_reset_password_from_key_url(key))

    def format_email_subject(self, subject: str) -> str:
        """The subject with our name, where allauth would put the request's host."""
        return f"Vinery: {subject}"

    def _get_login_attempts_cache_key(self, request: HttpRequest, **credentials: Any) -> str:
        return attempts.name_key(credentials.get("username", ""))
