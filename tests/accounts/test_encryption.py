"""Secrets in the database are encrypted with Django's key, and each purpose has its own key."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.fernet import InvalidToken

from vinery_accounts.base.encryption import cipher

OLD, NEW = "an old key of Django, quite long and random", "a new key of Django, long and random"


def test_an_encrypted_text_is_decrypted_again(settings: Any) -> None:
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = OLD, []
    encrypted = cipher(b"one").encrypt(b"secret")

    assert b"secret" not in encrypted
    assert cipher(b"one").decrypt(encrypted) == b"secret"


def test_a_secret_cannot_be_decrypted_for_another_purpose() -> None:
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
