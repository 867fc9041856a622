"""Encryption of stored secrets that must be read again and so cannot be hashed.

Django's SECRET_KEY encrypts, so a dump of the database alone reveals no secret.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
from typing import TYPE_CHECKING, Final

from django.conf import settings
from django.utils.encoding import force_bytes

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE_BYTES: Final = 12


def cipher(purpose: bytes) -> MultiFernet:
    """A cipher for this purpose, with keys derived from SECRET_KEY and SECRET_KEY_FALLBACKS.
    SECRET_KEY encrypts; all keys decrypt."""
    # Imported here: few processes need it.
    from cryptography.fernet import Fernet, MultiFernet

    return MultiFernet([Fernet(base64.urlsafe_b64encode(key)) for key in keys_of(purpose)])


def seal(purpose: bytes, content: bytes, *, bound_to: bytes | None = None) -> bytes:
    """Encrypt and authenticate bytes, of which there may be megabytes: Fernet would hold up all
    other threads for a second. Only who names `bound_to` again can open the result."""
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + _sealers(purpose)[0].encrypt(nonce, content, bound_to)


def unseal(purpose: bytes, sealed: bytes, *, bound_to: bytes | None = None) -> bytes:
    """Raises ValueError for what `seal` has not made with a key of this purpose."""
    from cryptography.exceptions import InvalidTag

    for sealer in _sealers(purpose):
        with contextlib.suppress(InvalidTag):
            return sealer.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bound_to)
    raise ValueError("it was sealed with another key, or is damaged")


def resealed(purpose: bytes, sealed: bytes, *, bound_to: bytes | None = None) -> bytes:
    """The same content sealed with the newest key: `sealed` itself if it is already. Raises
    ValueError as `unseal` does."""
    from cryptography.exceptions import InvalidTag

    newest = _sealers(purpose)[0]
    with contextlib.suppress(InvalidTag):
        newest.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bound_to)
        return sealed
    return seal(purpose, unseal(purpose, sealed, bound_to=bound_to), bound_to=bound_to)


def keys_of(purpose: bytes) -> list[bytes]:
    """The keys of a purpose, the newest first."""
    # One hash is enough for a 256-bit key: Django's key is long and random.
    keys = (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    return [hmac.digest(force_bytes(key), purpose, hashlib.sha256) for key in keys]


def _sealers(purpose: bytes) -> list[AESGCM]:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return [AESGCM(key) for key in keys_of(purpose)]


def reencrypted(purpose: bytes, encrypted: str) -> str:
    """The same text encrypted with the newest key. Raises `cryptography.fernet.InvalidToken`."""
    return cipher(purpose).rotate(encrypted.encode()).decode()
