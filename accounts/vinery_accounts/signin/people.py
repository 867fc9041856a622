"""Who may sign in and how, for Django and for allauth, and where links of sign-in lead."""

import time
from typing import Any
from urllib.parse import urlsplit

from allauth.account import app_settings
from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.internal.flows.login import get_authentication_records
from django.conf import settings
from django.contrib.auth.backends import ModelBackend
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from vinery_accounts.models import User
from vinery_accounts.signin import attempts, log


def may_sign_in(user: User) -> bool:
    """Whether the account may have a session: it is active, and not a service account."""
    return user.is_active and not user.is_service


class PeopleBackend(ModelBackend):
    """Django asks this backend at each request, so a deactivated user is signed out at once."""

    def user_can_authenticate(self, user: Any) -> bool:
        return isinstance(user, User) and may_sign_in(user)


def public_url(url: str) -> str:
    if not settings.VINERY_PUBLIC_URL:
        return url
    parts = urlsplit(url)
    query = f"?{parts.query}" if parts.query else ""
    return f"{settings.VINERY_PUBLIC_URL}{parts.path}{query}"


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]
    """The adapter that `ACCOUNT_ADAPTER` names: no sign-up, and links to our public URL."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Never: administrators create accounts, or the issuer does (`oidc_adapter.py`)."""
        return False

    def get_login_redirect_url(self, request: HttpRequest) -> str:
        return reverse("console:overview")

    def pre_login(self, request: HttpRequest, user: User, **hints: Any) -> HttpResponse | None:
        if not may_sign_in(user):
            log.failed(request, user, "account that may not sign in")
            refusal: HttpResponse = self.respond_user_inactive(request, user)
            return refusal
        response: HttpResponse | None = super().pre_login(request, user, **hints)
        return response

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """Raises `ValidationError` after too many wrong passwords."""
        username = credentials.get("username", "")
        user = log.named(username)
        counter = attempts.counter_of(request, username, user)
        # Allauth takes the attempt back when the password was right.
        self._login_failed_rl_usage = attempts.consume(request, counter)
        if not self._login_failed_rl_usage:
            log.locked_out(request, user)
            raise self.validation_error(attempts.TOO_MANY)

    def is_reauthentication_required(self, *, app: str, **more: Any) -> bool:
        """Whether the user needs another proof of identity. Not within five minutes of a sign-in:
        allauth would count only a later proof."""
        records = get_authentication_records(self.request, self.request.user)
        last_s = max((float(each["at"]) for each in records), default=0.0)
        is_old = time.time() - last_s >= app_settings.REAUTHENTICATION_TIMEOUT
        return is_old and bool(super().is_reauthentication_required(app=app, **more))

    def authentication_failed(self, request: HttpRequest, **credentials: Any) -> None:
        log.failed(request, log.named(credentials.get("username", "")), "password")

    def send_password_reset_mail(self, user: User, email: str, context: dict[str, Any]) -> None:
        """Only users with a password get the mail: the issuer could not revoke a new password."""
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
