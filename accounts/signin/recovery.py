"""The way back in for somebody who has lost their password or their phone: what an
administrator does for them, by command or in the admin."""

from __future__ import annotations

from django.contrib.auth.password_validation import validate_password

from accounts.models import User
from accounts.signin.factors import forget_factors


def set_password(user: User, password: str) -> None:
    """Give a new password, which also ends the person's sessions.

    Raises Django's `ValidationError`, whose messages say what the password lacks, and
    `ValueError` for a service account, which never signs in.
    """
    if user.is_service:
        raise ValueError("A service account has no password: it uses keys.")
    validate_password(password, user)
    user.set_password(password)
    user.save(update_fields=["password"])


def reset_second_factor(user: User) -> bool:
    """Let the password alone suffice until the person sets up a new second factor.

    Their recovery codes go, too. Returns whether there was anything to forget.
    """
    return forget_factors(user) > 0
