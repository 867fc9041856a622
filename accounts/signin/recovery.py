"""The way back in for somebody who has lost their phone: what an administrator does for them,
by command or in the admin."""

from __future__ import annotations

from accounts.models import User
from accounts.services import audit, changes
from accounts.signin import attempts
from accounts.signin.factors import forget_factors


def set_password(user: User, password: str) -> None:
    """For whoever lost theirs: the new one lets them in at once, however many wrong ones were
    tried before. Raises `ValidationError` for a weak password, or one of a service account."""
    changes.set_password(user, password)
    attempts.forget(user)


def reset_second_factor(user: User) -> bool:
    """Let the password alone suffice until the person sets up a new second factor.

    Their recovery codes go, too. Returns whether there was anything to forget.
    """
    with audit.writing():
        if not forget_factors(user):
            return False
        audit.record("second_factor_off", user)
        return True
