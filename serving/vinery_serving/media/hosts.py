"""Names of hosts as media rules hold them: lower case, in punycode, without a dot at the end."""

import re
from ipaddress import ip_address

import idna

from vinery_accounts.outbound.urls import ENDS_IN_NUMBER, LABEL, MAX_HOST_CHARS, is_punycode


def ascii_host(text: str) -> str:
    """Return the name in lower case and punycode, or the address in its usual notation. Raises
    ValueError that gives the reason and what to write."""
    name = text.strip().removesuffix(".")
    address = _address(name)
    if address:
        return address
    try:
        name = name.lower() if name.isascii() else idna.encode(name, uts46=True).decode()
    except idna.IDNAError:
        raise ValueError(f"{text} has letters that no name of a host may have.") from None
    _check(name, text)
    return name


def host_pattern(text: str) -> str:
    """Return `ascii_host` of a name, or of one behind a leading `*.`. Raises ValueError."""
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


def _address(name: str) -> str | None:
    try:
        address = ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None
    return str(address)


def _check(name: str, text: str) -> None:
    """Raises ValueError for a name that is none of a host."""
    if re.search(r"[/:@?#]", name):
        raise ValueError(
            f"{text} is more than a host. Write the name alone, such as images.example.org, and "
            "schemes and ports in their own fields."
        )
    if "*" in name:
        raise ValueError("Only the beginning may be a wildcard, such as *.example.org")
    if ENDS_IN_NUMBER.fullmatch(name):
        raise ValueError(f"{text} is neither a name nor an address such as 192.0.2.1")
    labels = name.split(".")
    if len(name) > MAX_HOST_CHARS or not all(map(LABEL.fullmatch, labels)):
        raise ValueError(f"{text} is no name of a host. Write one such as images.example.org")
    for label in labels:
        if not is_punycode(label):
            raise ValueError(f"{label} is no valid punycode. Write the name in its letters.")
