"""URLs that lead to non-public addresses, in every notation that a program may read.

`ATTACKS` is made by rules: each forbidden IPv4 address in each notation, behind each trick with
names, and the forbidden IPv6 addresses. `{port}` is the port of a server that listens on all
addresses of this machine.
"""

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address
from typing import Final

FORBIDDEN_IPV4: Final = tuple(
    map(
        IPv4Address,
        (
            *("127.0.0.1", "127.1.2.3", "10.0.0.1", "172.16.0.1", "192.168.1.1", "0.0.0.0"),
            *("169.254.169.254", "100.64.0.1", "100.100.100.200", "192.0.0.192", "224.0.0.1"),
            *("168.63.129.16", "198.18.0.1", "192.0.2.1", "240.0.0.1", "255.255.255.255"),
        ),
    )
)
FORBIDDEN_IPV6: Final = (
    *("::", "::1", "fe80::1", "fe80::a9fe:a9fe", "fc00::1", "fd00:ec2::254", "fd20:ce::254"),
    *("fec0::1", "ff02::1", "2001:db8::1", "3fff::1", "100::1", "5f00::1", "2001::1", "4000::1"),
    *("2001:20::1", "2620:4f:8000::1", "::ffff:0:127.0.0.1", "0:0:0:0:0:0:0:1"),
)
# Full-width, Arabic, Devanagari, mathematical, circled and superscript digits.
_DIGITS: Final = (
    *("".join(chr(zero + each) for each in range(10)) for zero in (0xFF10, 0x660, 0x966, 0x1D7CE)),
    "\u24ea" + "".join(chr(0x2460 + each) for each in range(9)),
    "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079",
)
# The ideographic, full-width and half-width full stop, and the one-dot leader.
_DOTS: Final = ("\u3002", "\uff0e", "\uff61", "\u2024")
_UNSEEN: Final = ("\t", "\n", "\r", " ", "\0", "\u200b", "\u202e", "\ufeff", "\u00ad")
_ZONES: Final = ("%25lo", "%lo", "%251")
_SCHEMES: Final = (
    *("file", "ftp", "ftps", "sftp", "gopher", "dict", "ldap", "tftp", "telnet", "ws", "wss"),
    *("data", "javascript", "jar", "netdoc", "unix", "http+unix", "https+ssh", "smb"),
    "view-source",
)


def numbers(ip: IPv4Address) -> Iterator[str]:
    """Notations that `inet_aton` or a lenient reader takes for the address."""
    a, b, c, d = ip.packed
    yield str(int(ip))
    yield hex(int(ip))
    yield hex(int(ip)).upper()
    yield f"0{int(ip):o}"
    yield f"0x{a:x}.0x{b:x}.0x{c:x}.0x{d:x}"
    yield f"0{a:o}.0{b:o}.0{c:o}.0{d:o}"
    yield f"000{a:o}.{b}.{c}.{d}"
    yield f"0x{a:x}.{b}.0{c:o}.{d}"
    yield f"{a}.{b << 16 | c << 8 | d}"
    yield f"{a}.{b}.{c << 8 | d}"
    yield f"0x{a:x}.0{b << 16 | c << 8 | d:o}"
    yield f"{a + 256}.{b}.{c}.{d}"
    yield f"{int(ip) + 2**32}"
    yield f"{a}.{b}.{c}.{d}.0"


def disguised(ip: IPv4Address) -> Iterator[str]:
    """The address in other scripts, percent-encoded, or beside a public one."""
    text = str(ip)
    for digits in _DIGITS:
        yield "".join(digits[int(each)] if each.isdecimal() else each for each in text)
    for dot in _DOTS:
        yield text.replace(".", dot)
    yield "".join(f"%{ord(each):02x}" for each in text)
    yield text.replace(".", "%2e")
    yield f"8.8.8.8@{text}"
    yield f"8.8.8.8:443@{text}"
    yield f"user:word@{text}"
    yield f"@{text}"
    yield f"8.8.8.8%40@{text}"
    yield f"8.8.8.8\\@{text}"
    yield f"{text}\\.example.com"
    yield f"{text}%00.example.com"
    yield f"[{text}]"


def plain(ip: IPv4Address) -> Iterator[str]:
    """The address itself, and the IPv6 addresses that contain it."""
    yield str(ip)
    yield f"{ip}."
    number = int(ip)
    high, low = number >> 16, number & 0xFFFF
    yield f"[::ffff:{ip}]"
    yield f"[::ffff:{high:x}:{low:x}]"
    yield f"[::{ip}]"
    yield f"[::ffff:0:{ip}]"
    yield f"[64:ff9b::{ip}]"
    yield f"[64:ff9b:1::{ip}]"
    yield f"[2002:{high:x}:{low:x}::1]"
    yield f"[{IPv6Address(0x2001_0000 << 96 | number ^ 0xFFFFFFFF)}]"
    yield f"[2606:4700::5efe:{high:x}:{low:x}]"


def ports(ip: IPv4Address) -> Iterator[str]:
    for port in (
        *("0", "00080", "65536", "+80", "-1", "\uff18\uff10", "80 ", "0x50", "80:80", ""),
        "80@8.8.8.8",
    ):
        yield f"http://{ip}:{port}/"


def unseen(ip: IPv4Address) -> Iterator[str]:
    for letter in _UNSEEN:
        yield f"http://{ip}{letter}:{{port}}/"
        yield f"http://8.8.8.8{letter}@{ip}:{{port}}/"
        yield f"{letter}http://{ip}:{{port}}/"
        yield f"ht{letter}tp://{ip}:{{port}}/"


def _all() -> Iterator[str]:
    for ip in FORBIDDEN_IPV4:
        for host in (*plain(ip), *numbers(ip), *disguised(ip)):
            yield f"http://{host}:{{port}}/"
        yield f"//{ip}:{{port}}/"
        yield f"http:/{ip}:{{port}}/"
        yield f"http:{ip}:{{port}}/"
        yield f"http:///{ip}:{{port}}/"
        yield f"http:\\\\{ip}:{{port}}/"
    loopback = FORBIDDEN_IPV4[0]
    yield from ports(loopback)
    yield from unseen(loopback)
    yield from (f"{scheme}://{loopback}:{{port}}/" for scheme in _SCHEMES)
    for host in FORBIDDEN_IPV6:
        yield f"http://[{host}]:{{port}}/"
        yield f"HTTPS://[{host.upper()}]:{{port}}/"
        yield from (f"http://[{host}{zone}]:{{port}}/" for zone in _ZONES)


ATTACKS: Final = tuple(dict.fromkeys(_all()))
# Names of this machine and of the networks of clouds; a resolver may know them.
NAMES: Final = (
    *("localhost", "LOCALHOST.", "localhost.localdomain", "ip6-localhost", "a.localhost"),
    *("metadata.google.internal", "metadata", "kubernetes.default.svc", "host.docker.internal"),
    *("127.0.0.1.nip.io", "xn--bcher-kva.example", "bücher.example", "metadata_x.internal"),
)
