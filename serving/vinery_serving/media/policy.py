"""Which media a caller may send by URL or path, as plain values.

A policy has one level for the platform, and one for each of the caller's organisation and project
that has rules of its own. Every level must allow a URL, so an organisation or a project can only
narrow. The strictest value of all levels counts. Without a rule of the platform nothing is allowed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

DEFAULT_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class UrlRule:
    """Allows the URLs of a host."""

    id: int
    host: str  # lower case, punycode; with a leading `*.` all hosts below it, but not itself
    schemes: frozenset[str] = frozenset({"https"})
    ports: frozenset[int] = frozenset()  # empty: the scheme's default port
    content_types: tuple[str, ...] = ()  # such as `image/png` or `image/*`; empty: all that is read
    max_bytes: int = 20 * 1024 * 1024
    max_pixels: int = 40_000_000  # of one picture, before it is scaled
    max_redirects: int = 3  # each target must match a rule, too
    timeout_s: float = 10.0  # from the first DNS query to the last byte
    networks: tuple[str, ...] = ()  # addresses that are not public and allowed nevertheless

    def matches(self, scheme: str, host: str, port: int) -> bool:
        """`host` is lower case and in punycode, without a trailing dot."""
        is_port = port in self.ports if self.ports else port == DEFAULT_PORTS.get(scheme)
        return scheme in self.schemes and is_port and self._is_host(host)

    def _is_host(self, host: str) -> bool:
        if self.host.startswith("*."):
            return host.endswith(self.host[1:]) and len(host) > len(self.host) - 1
        return host == self.host


@dataclass(frozen=True, slots=True)
class FolderRule:
    """Allows the regular files in a folder of the server and in the folders below it."""

    id: int
    folder: str  # an absolute path without links
    max_bytes: int = 20 * 1024 * 1024
    max_pixels: int = 40_000_000


@dataclass(frozen=True, slots=True)
class Level:
    """The rules of the platform, of an organisation or of a project."""

    scope: str  # "platform", "organization" or "project"
    name: str = ""  # of the organisation or project
    urls: tuple[UrlRule, ...] | None = None  # None: those of the wider level
    folders: tuple[FolderRule, ...] | None = None  # None: those of the wider level
    max_media: int | None = None  # of a request, inline ones too; None: as the wider level


@dataclass(frozen=True, slots=True)
class MediaPolicy:
    """What a caller may send. `levels` begins with the platform's."""

    levels: tuple[Level, ...] = (Level("platform", urls=(), folders=()),)

    @property
    def max_media(self) -> int | None:
        """The most media of a request; None: the default of the settings."""
        limits = [level.max_media for level in self.levels if level.max_media is not None]
        return min(limits, default=None)

    def url_rules(
        self, scheme: str, host: str, port: int
    ) -> Iterator[tuple[Level, UrlRule | None]]:
        """Yield each level that has rules with its first one that allows the host, or with None."""
        for level in self.levels:
            if level.urls is None:
                continue
            matching = (rule for rule in level.urls if rule.matches(scheme, host, port))
            yield level, next(matching, None)
