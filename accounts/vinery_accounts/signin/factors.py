"""Second factors: encrypted secrets in the database, and codes that work once."""

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

from vinery_accounts.access import audit, changes
from vinery_accounts.base import encryption
from vinery_accounts.base.encryption import cipher
from vinery_accounts.models import User
from vinery_accounts.signin import attempts, log

_PURPOSE: Final = b"vinery second factors"


class FactorAdapter(DefaultMFAAdapter):  # type: ignore[misc]
    """The adapter that `MFA_ADAPTER` names: it encrypts the secrets of factors."""

    def encrypt(self, text: str) -> str:
        return cipher(_PURPOSE).encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        """The stored text. Raises `cryptography.fernet.InvalidToken` after a change of Django's
        key without SECRET_KEY_FALLBACKS."""
        return cipher(_PURPOSE).decrypt(encrypted_text.encode()).decode()

    def get_public_key_credential_rp_entity(self) -> dict[str, str]:
        from vinery_accounts.signin import passkeys  # only pages need its libraries

        return {"id": passkeys.host_of(context.request), "name": app_settings.TOTP_ISSUER}

    def generate_authenticator_name(self, user: User, type: Authenticator.Type) -> str:
        number = Authenticator.objects.filter(user=user, type=type).count() + 1
        return "Passkey" if number == 1 else f"Passkey {number}"


def reencrypted(data: Mapping[str, Any]) -> dict[str, Any]:
    """Allauth's data of a factor, with its secrets encrypted under Django's newest key. Raises
    `cryptography.fernet.InvalidToken` if no known key decrypts them."""
    secrets = {name: data[name] for name in ("secret", "seed") if name in data}
    return {
        **data,
        **{name: encryption.reencrypted(_PURPOSE, secret) for name, secret in secrets.items()},
    }


class _OneUse:
    """Remembers used codes as long as they are valid. Allauth remembers a code for one period only,
    but with the tolerance a code is valid for three."""

    user: User

    def clean_code(self) -> str:
        try:
            code: str = super().clean_code()  # type: ignore[misc]
        except ValidationError as error:
            if error.code == attempts.TOO_MANY:
                log.locked_out(context.request, self.user)
            raise
        # Users may type spaces between the digits.
        plain = "".join(filter(str.isalnum, code)).upper()
        num_periods = 2 * app_settings.TOTP_TOLERANCE + 1
        is_new = cache.add(
            f"vinery.factor.used:{self.user.pk}:{plain}",
            1,
            timeout=num_periods * app_settings.TOTP_PERIOD,
        )
        if not is_new:
            log.failed(context.request, self.user, "second factor")
            raise FactorAdapter().validation_error("incorrect_code")
        return code


class ActivateForm(_OneUse, ActivateTOTPForm):  # type: ignore[misc]
    """The code that proves that the phone has the secret. The same code cannot sign in."""


class AuthenticateForm(_OneUse, AllauthAuthenticateForm):  # type: ignore[misc]
    """The code at sign-in."""


class ReauthenticateForm(_OneUse, AllauthReauthenticateForm):  # type: ignore[misc]
    """The code at reauthentication."""


def forget_factors(user: User) -> int:
    num_deleted: int
    num_deleted, _ = Authenticator.objects.filter(user=user).delete()
    return num_deleted


def set_password(user: User, password: str) -> None:
    """Set a new password, and reset the count of wrong passwords. Raises `ValidationError` for a
    weak password, and for a service account."""
    changes.set_password(user, password)
    attempts.forget(user)


def reset_second_factor(user: User) -> bool:
    with audit.writing():
        if not forget_factors(user):
            return False
        audit.record("second_factor_off", user)
        return True
