"""Values of media rules as they are stored: hosts, schemes, ports, types, networks and folders."""

import os
import re
from ipaddress import ip_address
from pathlib import PurePosixPath
from typing import Any, Final

import idna

from vinery_accounts.outbound import addresses
from vinery_accounts.outbound.urls import UrlRefused, read_host

SCHEMES: Final = ("https", "http")
MAX_LIST: Final = 50
"""How many ports, content types or networks a rule may name."""

# -- Names of hosts: lower case, in punycode, without a dot at the end


def ascii_host(text: str) -> str:
    """Return the name in lower case and punycode, or the address in its usual notation. Raises
    ValueError that gives the reason and what to write."""
    name = text.strip().removesuffix(".")
    if address := _address(name):
        return address
    if re.search(r"[/:@?#]", name):
        raise ValueError(
            f"{text} is more than a host. Write the name alone, such as images.example.org, and "
            "schemes and ports in their own fields."
        )
    if "*" in name:
        raise ValueError("Only the beginning may be a wildcard, such as *.example.org")
    try:
        return read_host(name if name.isascii() else idna.encode(name, uts46=True).decode())
    except idna.IDNAError:
        raise ValueError(f"{text} has letters that no name of a host may have.") from None
    except UrlRefused as error:
        raise ValueError(str(error)) from None


def _address(name: str) -> str | None:
    try:
        return str(ip_address(name.removeprefix("[").removesuffix("]")))
    except ValueError:
        return None


def host_pattern(text: str) -> str:
    """Return `ascii_host` of a name, or of a name behind a leading `*.`. Raises ValueError."""
    stripped = text.strip()
    if stripped in ("*", "*."):
        raise ValueError("* would allow every host. Name a host, or a domain such as *.example.org")
    if not stripped.startswith("*."):
        return ascii_host(stripped)
    domain = ascii_host(stripped[2:])
    if _address(domain):
        raise ValueError(f"There are no hosts below the address {domain}. Write the address alone.")
    if "." not in domain:
        raise ValueError(f"*.{domain} allows too much. Name a domain, such as *.example.{domain}")
    return f"*.{domain}"


def overlaps(one: str, other: str) -> bool:
    """Return whether there are hosts that both patterns allow."""
    return one == other or _allows(one, other) or _allows(other, one)


def _allows(wildcard: str, pattern: str) -> bool:
    return wildcard.startswith("*.") and pattern.removeprefix("*").endswith(wildcard[1:])


def read_schemes(value: Any) -> list[str]:
    names = _texts(value, "schemes")
    if not names or not set(names) <= set(SCHEMES):
        raise ValueError("Name https, http or both.")
    return names


def read_ports(value: Any) -> list[int]:
    if not isinstance(value, list) or len(value) > MAX_LIST:
        raise ValueError(f"Give a list of up to {MAX_LIST} ports.")
    if not all(type(each) is int and 1 <= each <= 65535 for each in value):
        raise ValueError("A port is a whole number from 1 to 65535.")
    return sorted(set(value))


def read_content_types(value: Any) -> list[str]:
    names = [name.lower() for name in _texts(value, "content types")]
    for name in names:
        if not re.fullmatch(r"(image|video|application)/(\*|[a-z0-9][a-z0-9.+-]*)", name):
            raise ValueError(
                f"{name} is no type of a picture, a video or a PDF. Write one such as image/png, "
                "image/* or application/pdf."
            )
    return names


def read_networks(value: Any) -> list[str]:
    texts = _texts(value, "networks")
    for text in texts:
        try:
            addresses.read_networks([text])
        except ValueError:
            raise ValueError(f"{text} is no network. Write one such as 10.1.0.0/16.") from None
    return [str(network) for network in addresses.read_networks(texts)]


def _texts(value: Any, what: str) -> list[str]:
    if not isinstance(value, list) or len(value) > MAX_LIST:
        raise ValueError(f"Give a list of up to {MAX_LIST} {what}.")
    if not all(isinstance(each, str) for each in value):
        raise ValueError(f"Give {what} as texts.")
    return sorted({each.strip() for each in value})


def read_absolute(text: str) -> str:
    """Return the path without a slash at its end. Raises ValueError for a relative path, and for a
    path with a parent or to the root."""
    path = PurePosixPath(text)
    if not path.is_absolute() or "\0" in text:
        raise ValueError(f"{text} is not an absolute path. Write one such as /srv/pictures.")
    if ".." in path.parts:
        raise ValueError("Leave out .. in the path.")
    if len(path.parts) < 2:
        raise ValueError("This would allow every file of the server. Name a folder in it.")
    return "/" + "/".join(path.parts[1:])


def read_folder(text: str) -> str:
    """Return the path of a folder of the server. Raises ValueError, also behind a link."""
    path = read_absolute(text)
    if not os.path.isdir(path):  # noqa: PTH112
        raise ValueError(f"There is no folder {path} on the server.")
    real = os.path.realpath(path)
    if real != path:
        raise ValueError(f"{path} is behind a link. Write the folder itself: {real}")
    return path
