"""The texts of a capture as the database holds them: encrypted, and of no use in another row."""

from __future__ import annotations

import msgspec

from accounts.base.encryption import cipher
from accounts.models import Capture

_PURPOSE = b"vinery captures"


class CaptureUnreadable(Exception):
    """The texts cannot be opened. The message says why."""


class Texts(msgspec.Struct, frozen=True):
    """What was asked and answered, as the wire had it."""

    request_id: str
    body: bytes
    answer: bytes


def seal(texts: Texts) -> bytes:
    """For the database."""
    return cipher(_PURPOSE).encrypt(msgspec.msgpack.encode(texts))


def decrypt(row: Capture) -> Texts:
    """Raises `CaptureUnreadable`."""
    from cryptography.fernet import InvalidToken

    try:
        opened = cipher(_PURPOSE).decrypt(bytes(row.sealed))
    except InvalidToken:
        raise CaptureUnreadable(
            "The texts cannot be read: the server's secret key has changed."
        ) from None
    texts = msgspec.msgpack.decode(opened, type=Texts)
    if texts.request_id != row.request_id:
        raise CaptureUnreadable("The texts are of another request: the row was tampered with.")
    return texts
