r"""URLs of users: read strictly, so that no other program reads another host in them.

Programs disagree about user names before the host, backslashes, control characters, and
notations of addresses such as `0x7f.1` or `2130706433` (which `inet_aton` takes as 127.0.0.1).
Such URLs are refused by name. Sources: RFC 3986 for the parts, RFC 5891 for the names of other
scripts, the URL standard of WHATWG for hosts that end in a number.
"""

import re
import unicodedata
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final
from urllib.parse import quote, urljoin

import idna

DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_MAX_CHARS: Final = 8192
_MAX_HOST_CHARS: Final = 253
_MAX_PORT: Final = 65535

_URL: Final = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<rest>.*)"
)
_AUTHORITY: Final = re.compile(r"(?:\[(?P<ipv6>[^\[\]]*)\]|(?P<name>[^:\[\]]*))(?::(?P<port>.*))?")
# A part of a name. Names in a private network may have an underscore.
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
# An address in one of the notations that some resolvers read: 2130706433, 0x7f.1, 127.1.
_ENDS_IN_NUMBER: Final = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")
# Categories of Unicode that a reader cannot see: controls, marks of direction, joiners, surrogates
# and all spaces.
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Zs", "Zl", "Zp"})
# The characters of paths and queries that stay; all others are percent-encoded.
_SAFE: Final = "".join(set(map(chr, range(0x21, 0x7F))) - set('"<>^`{|}'))


class UrlRefused(Exception):
    """The text is not a URL, or different programs read the URL differently. The message names what
    to change."""


@dataclass(frozen=True, slots=True)
class Url:
    """A URL that was read. It has no user, no password and no fragment."""

    scheme: str  # http or https
    host: str  # lower case and punycode, or an address without brackets
    port: int
    target: str  # path and query, ASCII

    @property
    def is_tls(self) -> bool:
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS.get(self.scheme) else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.authority}"

    def __str__(self) -> str:
        return self.origin + self.target


def read_url(text: str) -> Url:
    """Raises `UrlRefused`, which names what to change."""
    _check_characters(text)
    found = _URL.fullmatch(text)
    if found is None:
        raise UrlRefused("This is not a URL: it begins with https:// and a host.")
    scheme = found["scheme"].lower()
    if scheme not in DEFAULT_PORTS:
        raise UrlRefused("Give a URL that starts with https:// or http://.")
    host, port = _read_authority(found["authority"], scheme)
    target = quote(found["rest"].partition("#")[0], safe=_SAFE)
    return Url(scheme, host, port, target if target.startswith("/") else f"/{target}")


def join(base: Url, location: str) -> Url:
    """The URL that a redirect of `base` leads to. Raises `UrlRefused`."""
    _check_characters(location)
    try:
        return read_url(urljoin(str(base), location))
    except ValueError:  # brackets that are not closed
        raise UrlRefused("The redirect does not lead to a URL.") from None


def _check_characters(text: str) -> None:
    if len(text) > _MAX_CHARS:
        raise UrlRefused(f"The URL has more than {_MAX_CHARS} characters.")
    if "\\" in text:
        raise UrlRefused("Write the URL without backslashes: programs read them differently.")
    if any(unicodedata.category(letter) in _UNSEEN for letter in text):
        raise UrlRefused("Write the URL without spaces and without characters that are not seen.")


def _read_authority(authority: str, scheme: str) -> tuple[str, int]:
    if "@" in authority:
        raise UrlRefused("Leave out the user and the password before the host.")
    if "%" in authority:
        raise UrlRefused("Write the host without percent signs.")
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        raise UrlRefused("Write the host as a name or an address; an IPv6 address in brackets.")
    host = read_host(found["name"]) if found["ipv6"] is None else _read_ipv6(found["ipv6"])
    return host, DEFAULT_PORTS[scheme] if found["port"] is None else _read_port(found["port"])


def _read_port(text: str) -> int:
    if not _PORT.fullmatch(text) or int(text) > _MAX_PORT:
        raise UrlRefused(f"Write the port as a number from 1 to {_MAX_PORT}.")
    return int(text)


def _read_ipv6(text: str) -> str:
    try:
        return str(IPv6Address(text))
    except AddressValueError:
        raise UrlRefused("The text in brackets is not an IPv6 address.") from None


def read_host(text: str) -> str:
    """The name in lower case and punycode, without a dot at its end, or the IPv4 address. Raises
    `UrlRefused`."""
    name = text.lower().removesuffix(".")
    if not text.isascii():
        name = _punycode(name)
    if _ENDS_IN_NUMBER.fullmatch(name):
        return _read_ipv4(name, is_ascii=text.isascii())
    if len(name) > _MAX_HOST_CHARS or not all(map(_LABEL.fullmatch, name.split("."))):
        raise UrlRefused("Write the host as letters, digits and hyphens with dots between them.")
    for label in name.split("."):
        if not _is_punycode(label):
            raise UrlRefused("A part of the host begins with xn-- and is not punycode.")
    return name


def _punycode(name: str) -> str:
    """Without the mapping of UTS 46: letters that only look like others are refused, such as
    full-width digits and the ideographic full stop."""
    try:
        return idna.encode(name, strict=True).decode("ascii")
    except (idna.IDNAError, UnicodeError):
        raise UrlRefused(
            "The host has characters that names cannot have. Write it in punycode (xn--...)."
        ) from None


def _is_punycode(label: str) -> bool:
    """Whether a part of a name, if it begins with `xn--`, stands for exactly one name."""
    try:
        return not label.startswith("xn--") or idna.encode(idna.decode(label)).decode() == label
    except (idna.IDNAError, UnicodeError):
        return False


def _read_ipv4(name: str, *, is_ascii: bool) -> str:
    """Only four decimal numbers: `inet_aton` takes eleven other notations."""
    try:
        if is_ascii:
            return str(IPv4Address(name))
    except AddressValueError:
        pass
    raise UrlRefused("Write the address as four decimal numbers, such as 192.0.2.1.")
