"""What an administrator does for a user who lost the password or the phone."""

from vinery_accounts.models import User
from vinery_accounts.services import audit, changes
from vinery_accounts.signin import attempts
from vinery_accounts.signin.factors import forget_factors


def set_password(user: User, password: str) -> None:
    """Set a new password, and reset the count of wrong ones.

    Raises `ValidationError` if it is weak, or for a service account.
    """
    changes.set_password(user, password)
    attempts.forget(user)


def reset_second_factor(user: User) -> bool:
    """Delete the user's second factor and recovery codes. Returns whether there was one."""
    with audit.writing():
        if not forget_factors(user):
            return False
        audit.record("second_factor_off", user)
        return True
