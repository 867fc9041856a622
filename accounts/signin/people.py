"""Who may sign in, and where links of sign-in lead."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.backends import ModelBackend
from django.urls import reverse

from accounts.models import User


def may_sign_in(user: User) -> bool:
    """Whether the account may have a session: it is active, and not a service account."""
    return user.is_active and not user.is_service


class PeopleBackend(ModelBackend):
    """Django's backend, for users who may sign in.

    Django asks it at each request, so a user who is deactivated is signed out at once.
    """

    def user_can_authenticate(self, user: Any) -> bool:
        return isinstance(user, User) and may_sign_in(user)


def home_of(user: Any) -> str:
    """The path of a user's first page: the admin for staff, the console for others."""
    return reverse("admin:index") if user.is_staff else reverse("console:overview")


def public_url(url: str) -> str:
    """The same path and query under VINERY_PUBLIC_URL, if that is set."""
    if not settings.VINERY_PUBLIC_URL:
        return url
    parts = urlsplit(url)
    query = f"?{parts.query}" if parts.query else ""
    return f"{settings.VINERY_PUBLIC_URL}{parts.path}{query}"
