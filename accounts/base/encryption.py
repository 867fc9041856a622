"""Secrets that must be used again and so cannot be hashed: encrypted under Django's key, so that
a dump of the database holds nothing usable."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import TYPE_CHECKING

from django.conf import settings
from django.utils.encoding import force_bytes

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet


def cipher(purpose: bytes) -> MultiFernet:
    """Keys of 256 bits for this purpose alone: the newest encrypts, all decrypt."""
    # Imported here because few processes ever need it.
    from cryptography.fernet import Fernet, MultiFernet

    keys = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    return MultiFernet([Fernet(_derived(key, purpose)) for key in keys])


def resealed(purpose: bytes, sealed: str) -> str:
    """The same, encrypted with the newest key. Raises `cryptography.fernet.InvalidToken`."""
    return cipher(purpose).rotate(sealed.encode()).decode()


def _derived(key: str | bytes, purpose: bytes) -> bytes:
    """Django's key is long and random, so that one hash will do."""
    return base64.urlsafe_b64encode(hmac.digest(force_bytes(key), purpose, hashlib.sha256))
