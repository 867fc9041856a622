"""The secret of an API key: its format, and the digest that is stored.

A key is `vny_live_` or, for an admin key, `vny_admin_`, 32 random base62 characters (190 bits), and
six more for the CRC32 of all before. The check finds copying mistakes without a look-up, and lets
secret scanners report leaks with few false alarms; it is no protection.

Only an HMAC-SHA-256 of the key is stored, under a numbered pepper that is not in the database.
A slow password hash would only cost time: 190 random bits cannot be guessed.
"""

import hmac
import re
import secrets
import string
import zlib
from collections.abc import Mapping
from functools import lru_cache

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

_ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
_NUM_RANDOM = 32
_NUM_CHECK = 6  # 62**6 is the first power above 2**32
_PAIRS = tuple((a + b).encode() for a in _ALPHABET for b in _ALPHABET)
_FORMAT = re.compile(rb"vny_[a-z]{2,8}_[0-9A-Za-z]{38}")


def key_peppers() -> Mapping[int, bytes]:
    """The peppers by number, from the settings. New keys use the highest number. Raises
    `ImproperlyConfigured` if there is none."""
    peppers: Mapping[int, bytes] = getattr(settings, "VINERY_KEY_PEPPERS", {})
    if not peppers or not all(peppers.values()):
        raise ImproperlyConfigured(
            "VINERY_KEY_PEPPERS must map at least one number to a secret, such as {1: b'...'}."
        )
    return peppers


def looks_like_key(text: str | bytes) -> bool:
    secret = text.encode("utf-8", "replace") if isinstance(text, str) else text
    if _FORMAT.fullmatch(secret) is None:
        return False
    return _check_characters(secret[:-_NUM_CHECK]) == secret[-_NUM_CHECK:]


def digest_of(secret: bytes, pepper: bytes) -> bytes:
    """The digest of a key that is stored: 32 bytes."""
    # Not `hmac.digest`: that releases the GIL, and the event loop would wait to get the GIL back.
    keyed = _keyed(pepper).copy()
    keyed.update(secret)
    return keyed.digest()


@lru_cache(maxsize=16)
def _keyed(pepper: bytes) -> hmac.HMAC:
    return hmac.new(pepper, digestmod="sha256")


def new_secret(env: str = "live") -> str:
    random = "".join(secrets.choice(_ALPHABET) for _ in range(_NUM_RANDOM))
    body = f"vny_{env}_{random}"
    return body + _check_characters(body.encode()).decode()


def hint_of(secret: str) -> str:
    """The part of a key that is shown to recognise it, such as `vny_live_aB3d…x9`."""
    num_shown = len(secret) - _NUM_RANDOM - _NUM_CHECK + 4
    return f"{secret[:num_shown]}…{secret[-2:]}"


def _check_characters(body: bytes) -> bytes:
    number, low = divmod(zlib.crc32(body), 62**2)
    high, middle = divmod(number, 62**2)
    return _PAIRS[high] + _PAIRS[middle] + _PAIRS[low]
