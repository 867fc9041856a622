"""Data URLs (RFC 2397) with base64 as clients really send them.

Clients differ: parameters, padding or none, either alphabet of base64 (RFC 4648, sections 4 and
5), white space. The declared type is ignored: the bytes show what a file is.
"""

import binascii
from typing import Final

_SCHEME: Final = "data:"
_STANDARD_ALPHABET: Final = bytes.maketrans(b"-_", b"+/")


class InvalidDataUrl(ValueError):
    """The message is a sentence without its subject, such as "must not be empty"."""


class TooManyBytes(InvalidDataUrl):
    def __init__(self, num_bytes: int, max_bytes: int) -> None:
        super().__init__(f"must have at most {max_bytes} bytes, but has {num_bytes}")
        self.num_bytes = num_bytes


def is_data_url(url: str) -> bool:
    return url[:64].lstrip()[: len(_SCHEME)].lower() == _SCHEME


def decode_data_url(url: str, max_bytes: int) -> bytes:
    """Return at least one byte. Raises `InvalidDataUrl`. The size is checked before decoding."""
    header, comma, payload = url.lstrip()[len(_SCHEME) :].partition(",")
    is_base64 = "base64" in (each.strip().lower() for each in header.split(";")[1:])
    if not is_data_url(url) or not comma or not is_base64:
        raise InvalidDataUrl("must begin like `data:image/png;base64,`, before the data")
    return decode_base64(payload, max_bytes)


def decode_base64(text: str, max_bytes: int) -> bytes:
    """Return at least one byte. Raises `InvalidDataUrl`. The size is checked before decoding."""
    try:
        encoded = text.encode("ascii")
    except UnicodeEncodeError as error:
        raise InvalidDataUrl(
            f"must have data as base64, which has no character {text[error.start]!a}"
        ) from None
    padded = encoded.translate(_STANDARD_ALPHABET, b" \t\n\r\f\v")
    digits = padded.rstrip(b"=")
    num_bytes = len(digits) * 3 // 4
    if not num_bytes:
        raise InvalidDataUrl("must not be empty")
    if num_bytes > max_bytes:
        raise TooManyBytes(num_bytes, max_bytes)
    padding = b"=" * (-len(digits) % 4)
    if len(padding) == 3 or len(padded) - len(digits) > 2:
        raise InvalidDataUrl("must have complete base64, but its number of characters is wrong")
    try:
        return binascii.a2b_base64(digits + padding, strict_mode=True)
    except binascii.Error:
        raise InvalidDataUrl(
            "must have base64 of letters, digits, `+`, `/`, `-` and `_`, with `=` at its end alone"
        ) from None
