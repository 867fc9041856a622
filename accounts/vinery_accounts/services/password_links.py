"""Links with which a user sets a password: for accounts that an owner or admin has created.

A link works once: its token contains the stored password, so it ends with the next password. The
same page opens the links of e-mails, see `signin`.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.tokens import default_token_generator
from django.urls import reverse
from django.utils import timezone
from django.utils.http import int_to_base36

from vinery_accounts.models import User
from vinery_accounts.services import audit


@dataclass(frozen=True, slots=True)
class PasswordLink:
    path: str
    expires_at: datetime


def password_link(user: User) -> PasswordLink:
    """Return a new link for this user, with an entry in the audit log."""
    audit.record("password_link", user)
    key = default_token_generator.make_token(user)
    names = {"uidb36": int_to_base36(user.pk), "key": key}
    lifetime = timedelta(seconds=settings.PASSWORD_RESET_TIMEOUT)
    return PasswordLink(
        reverse("account_reset_password_from_key", kwargs=names), timezone.now() + lifetime
    )
