"""The way back in for somebody who has lost their phone: what an administrator does for them,
by command or in the admin. A lost password is `accounts.changes.set_password`."""

from __future__ import annotations

from accounts import audit
from accounts.models import User
from accounts.signin.factors import forget_factors


def reset_second_factor(user: User) -> bool:
    """Let the password alone suffice until the person sets up a new second factor.

    Their recovery codes go, too. Returns whether there was anything to forget.
    """
    with audit.writing():
        if not forget_factors(user):
            return False
        audit.record("second_factor_off", user)
        return True
