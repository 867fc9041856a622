"""Encrypts the texts of a capture for the database. They are valid for their own row only."""

import msgspec

from vinery_accounts.access import audit
from vinery_accounts.base.encryption import cipher
from vinery_accounts.models import Capture

_PURPOSE = b"vinery captures"


class CaptureUnreadable(Exception):
    """The texts cannot be decrypted. The message contains the reason."""


class Texts(msgspec.Struct, frozen=True):
    """The body and the answer as they were sent."""

    request_id: str
    body: bytes
    answer: bytes


def encrypt(texts: Texts) -> bytes:
    return cipher(_PURPOSE).encrypt(msgspec.msgpack.encode(texts))


def decrypt(row: Capture) -> Texts:
    """Decrypt the texts of a row. Raises `CaptureUnreadable`."""
    from cryptography.fernet import InvalidToken

    try:
        opened = cipher(_PURPOSE).decrypt(bytes(row.encrypted_texts))
    except InvalidToken:
        raise CaptureUnreadable(
            "The texts cannot be read: the server's secret key has changed."
        ) from None
    texts = msgspec.msgpack.decode(opened, type=Texts)
    if texts.request_id != row.request_id:
        raise CaptureUnreadable("The texts belong to another request: the row was changed.")
    return texts


def read(row: Capture) -> Texts:
    """Return the texts of a row after writing an audit entry.

    Raises `CaptureUnreadable`, and `django.db.Error` if the entry cannot be written.
    """
    with audit.writing():
        texts = decrypt(row)
        audit.record("read", row)
    return texts
