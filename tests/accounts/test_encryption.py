"""Secrets in the database are bytes that Django's key alone opens, each kind for itself."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.fernet import InvalidToken

from accounts.base.encryption import cipher

OLD, NEW = "an old key of Django, quite long and random", "a new key of Django, long and random"


def test_an_encrypted_text_is_decrypted_again(settings: Any) -> None:
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = OLD, []
    encrypted = cipher(b"one").encrypt(b"secret")

    assert b"secret" not in encrypted
    assert cipher(b"one").decrypt(encrypted) == b"secret"


def test_another_purpose_opens_nothing() -> None:
    with pytest.raises(InvalidToken):
        cipher(b"another").decrypt(cipher(b"one").encrypt(b"secret"))


def test_an_old_key_decrypts_while_it_is_a_fallback(settings: Any) -> None:
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = OLD, []
    encrypted = cipher(b"one").encrypt(b"secret")

    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = NEW, [OLD]
    assert cipher(b"one").decrypt(encrypted) == b"secret"

    settings.SECRET_KEY_FALLBACKS = []
    with pytest.raises(InvalidToken):
        cipher(b"one").decrypt(encrypted)
