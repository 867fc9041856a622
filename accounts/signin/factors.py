"""Second factors: their secrets are encrypted in the database, and a code works once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from allauth.core import context
from allauth.mfa import app_settings
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.base.forms import AuthenticateForm as AllauthAuthenticateForm
from allauth.mfa.base.forms import ReauthenticateForm as AllauthReauthenticateForm
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.forms import ActivateTOTPForm
from django.core.cache import cache
from django.core.exceptions import ValidationError

from accounts.base import encryption as sealing
from accounts.base.encryption import cipher
from accounts.models import User
from accounts.signin import attempts, journal

_PURPOSE: Final = b"vinery second factors"


def has_second_factor(user: User) -> bool:
    """Whether a password alone does not let this person in."""
    return bool(Authenticator.objects.filter(user=user, type=Authenticator.Type.TOTP).exists())


class FactorAdapter(DefaultMFAAdapter):  # type: ignore[misc]
    """What `MFA_ADAPTER` names: a dump of the database opens no account."""

    def encrypt(self, text: str) -> str:
        """For the database."""
        return cipher(_PURPOSE).encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        """From the database. Raises `cryptography.fernet.InvalidToken` after a change of
        Django's key without SECRET_KEY_FALLBACKS."""
        return cipher(_PURPOSE).decrypt(encrypted_text.encode()).decode()


def resealed(data: Mapping[str, Any]) -> dict[str, Any]:
    """What allauth keeps of a factor, with its secrets under the newest of Django's keys. Raises
    `cryptography.fernet.InvalidToken`."""
    secrets = {name: data[name] for name in ("secret", "seed") if name in data}
    return {
        **data,
        **{name: sealing.resealed(_PURPOSE, secret) for name, secret in secrets.items()},
    }


class _OneUse:
    """Remembers codes as long as they are good.

    Allauth remembers them for one period only, and with its tolerance a code is good for three.
    """

    user: User

    def clean_code(self) -> str:
        """The code. Raises `ValidationError` for one that is wrong or was used before."""
        try:
            code: str = super().clean_code()  # type: ignore[misc]
        except ValidationError as error:
            if error.code != attempts.TOO_MANY:
                raise
            journal.locked_out(context.request, self.user)
            raise attempts.too_many(context.request, attempts.code_key(self.user)) from None
        # However it is typed: people part the digits.
        plain = "".join(filter(str.isalnum, code)).upper()
        num_periods = 2 * app_settings.TOTP_TOLERANCE + 1
        is_new = cache.add(
            f"vinery.factor.used:{self.user.pk}:{plain}",
            1,
            timeout=num_periods * app_settings.TOTP_PERIOD,
        )
        if not is_new:
            journal.failed(context.request, self.user, "second factor")
            raise FactorAdapter().validation_error("incorrect_code")
        return code


class ActivateForm(_OneUse, ActivateTOTPForm):  # type: ignore[misc]
    """The code that shows that the phone knows the secret. Whoever sees it typed has no way in."""


class AuthenticateForm(_OneUse, AllauthAuthenticateForm):  # type: ignore[misc]
    """The code at sign-in."""


class ReauthenticateForm(_OneUse, AllauthReauthenticateForm):  # type: ignore[misc]
    """The code before something that a stolen session should not do."""


def forget_factors(user: User) -> int:
    """Delete the second factor and its recovery codes; returns how many rows that were."""
    num_deleted: int
    num_deleted, _ = Authenticator.objects.filter(user=user).delete()
    return num_deleted
