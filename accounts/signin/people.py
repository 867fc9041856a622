"""Who may sign in: people whose account is active. A program's account has keys instead."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.backends import ModelBackend

from accounts.models import User


def may_sign_in(user: User) -> bool:
    """Whether this account may have a session at all, however its owner proves who they are."""
    return user.is_active and not user.is_service


class PeopleBackend(ModelBackend):
    """Django's own, for people alone.

    It is asked again at each request: whoever is deactivated, or made a service account, is
    signed out with that.
    """

    def user_can_authenticate(self, user: Any) -> bool:
        """See `may_sign_in`."""
        return isinstance(user, User) and may_sign_in(user)
