"""Encryption of stored secrets that must be read again and so cannot be hashed.

Django's SECRET_KEY encrypts, so a dump of the database alone reveals no secret.
"""

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
    """A cipher for this purpose, with keys derived from SECRET_KEY and SECRET_KEY_FALLBACKS.
    SECRET_KEY encrypts; all keys decrypt."""
    # Imported here: few processes need it.
    from cryptography.fernet import Fernet, MultiFernet

    keys = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    # One hash is enough for a 256-bit key: Django's key is long and random.
    derived = (hmac.digest(force_bytes(key), purpose, hashlib.sha256) for key in keys)
    return MultiFernet([Fernet(base64.urlsafe_b64encode(key)) for key in derived])


def reencrypted(purpose: bytes, encrypted: str) -> str:
    """The same text encrypted with the newest key. Raises `cryptography.fernet.InvalidToken`."""
    return cipher(purpose).rotate(encrypted.encode()).decode()
