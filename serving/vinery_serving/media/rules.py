"""The media that a caller may send by URL or path, and the reasons for refusals.

A policy has one level for the platform, and one for each of the caller's organisation and project
that has rules of its own. Every level must allow a URL or a file, so an organisation or a project
can only narrow. The strictest value of all levels counts. Without a rule of the platform nothing is
allowed.

A refusal never has the path or the query of a URL, nor the name of a file: they may hold secrets.
"""

import posixpath
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Final

from vinery_accounts.outbound.addresses import is_public, is_within, known_networks
from vinery_accounts.outbound.urls import DEFAULT_PORTS, Url
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.media.files import is_inside

# Types that can be decoded, and types that stores give all files.
_READ_TYPES: Final = (
    *("image/*", "video/*", "application/pdf"),
    *("application/octet-stream", "binary/octet-stream"),
)


@dataclass(frozen=True, slots=True)
class UrlRule:
    id: int
    host: str  # lower case, punycode; with a leading `*.` all hosts below a domain, not the domain
    schemes: tuple[str, ...] = ("https",)
    ports: tuple[int, ...] = ()  # empty: the scheme's default port
    content_types: tuple[str, ...] = ()  # such as `image/png` or `image/*`; empty: all that is read
    max_bytes: int = 20 * 1024 * 1024
    max_pixels: int = 40_000_000  # of one picture, before it is scaled
    max_redirects: int = 3  # each target must match a rule, too
    timeout_s: float = 10.0  # from the first DNS query to the last byte
    networks: tuple[str, ...] = ()  # addresses that are not public and allowed nevertheless

    def allows(self, url: Url) -> bool:
        ports = self.ports or (DEFAULT_PORTS.get(url.scheme),)
        is_below = self.host.startswith("*.") and url.host.endswith(self.host[1:])
        is_host = url.host == self.host or (is_below and len(url.host) >= len(self.host))
        return url.scheme in self.schemes and url.port in ports and is_host

    def __str__(self) -> str:
        return self.host


@dataclass(frozen=True, slots=True)
class FolderRule:
    id: int
    folder: str  # an absolute path without links
    max_bytes: int = 20 * 1024 * 1024
    max_pixels: int = 40_000_000

    def allows(self, path: str) -> bool:
        return is_inside(path, self.folder)

    def __str__(self) -> str:
        return self.folder


@dataclass(frozen=True, slots=True)
class Level:
    """The rules of the platform, of an organisation or of a project."""

    scope: str  # "platform", "organization" or "project"
    name: str = ""  # of the organisation or project
    urls: tuple[UrlRule, ...] | None = None  # None: those of the wider level
    folders: tuple[FolderRule, ...] | None = None  # None: those of the wider level
    max_media: int | None = None  # of a request, inline ones too; None: as the wider level

    @property
    def whose(self) -> str:
        scope = "organisation" if self.scope == "organization" else self.scope
        return f"the {scope} {self.name}".strip()


NOTHING: Final = Level("platform", urls=(), folders=())
"""The level of a platform without rules."""
Target = Url | str
"""A URL, or the path of a file."""


@dataclass(frozen=True, slots=True)
class MediaPolicy:
    """The media that a caller may send. `levels` begins with the platform's."""

    levels: tuple[Level, ...] = (NOTHING,)

    @property
    def max_media(self) -> int | None:
        """The most media of a request; None: the default of the settings."""
        limits = [level.max_media for level in self.levels if level.max_media is not None]
        return min(limits, default=None)

    def rules_of(self, target: Target) -> Iterator[tuple[Level, Any]]:
        """Yield each level with rules, and the first rule that allows the target, or None. A
        platform without rules allows nothing."""
        for level in self.levels or (NOTHING,):
            rules: Any = level.folders if isinstance(target, str) else level.urls
            if rules is not None or level.scope == "platform":
                yield level, next((rule for rule in rules or () if rule.allows(target)), None)

    def allows(self, target: Target) -> bool:
        """Whether a rule of each level that has rules allows the target."""
        return all(rule is not None for _, rule in self.rules_of(target))


class DenialReason(StrEnum):
    NO_RULE = "no_rule"  # no rule of a level allows the scheme, host and port, or the folder
    ADDRESS = "address"  # the host has an address that is not public
    CONTENT_TYPE = "content_type"
    MAX_BYTES = "max_bytes"
    MAX_PIXELS = "max_pixels"
    MAX_REDIRECTS = "max_redirects"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True)
class Denial:
    """A refused URL or path. Either `host` or `folder` is empty."""

    reason: DenialReason
    level: str  # of the policy that refused: "platform", "organization" or "project"
    scheme: str = ""
    host: str = ""  # lower case, punycode
    port: int = 0
    folder: str = ""  # that holds the file
    rule_id: int | None = None  # the rule whose value refused; None: no rule
    detail: str = ""  # the address, content type or number that was refused

    @property
    def target(self) -> Target:
        """The URL without its path, or the path of a file in the folder."""
        url = Url(self.scheme, self.host, self.port, target="/")
        return posixpath.join(self.folder, "file") if self.folder else url

    @property
    def what(self) -> str:
        """The folder, or the URL without its path."""
        return self.folder if isinstance(self.target, str) else self.target.origin


class MediaDenied(
    InvalidRequest,
    code="media_denied",
    recorded_as="The media rules do not allow a URL or file of the request.",
):
    """The media rules do not allow a URL or file that the request names."""

    def __init__(self, message: str, denial: Denial, *, param: str | None = None) -> None:
        super().__init__(message, param=param)
        self.denial = denial


class MediaNotFetched(
    InvalidRequest,
    code="media_not_fetched",
    recorded_as="A URL or file of the request cannot be fetched or read.",
):
    """A URL or file that the request names cannot be fetched or read."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a fetch, for the tester of media rules."""

    # "rule": a level's rule allows the target; "addresses" of the host, all allowed; "redirect" to
    # the next URL; "response"; "bytes" were read; "denied" by the rules; "failed"
    name: str
    is_ok: bool | None  # None: neither allows nor refuses
    text: str  # without the query of a URL


@dataclass(frozen=True, slots=True)
class Granted:
    level: Level
    rule: Any
    target: Target


class Permit:
    """The rules that allow one fetch: of a file, or of a URL and its redirects. The strictest value
    of all these rules counts, and a refusal names the rule of the value."""

    def __init__(
        self, policy: MediaPolicy, param: str, observe: Callable[[Step], None] = lambda _: None
    ) -> None:
        self.param = param
        self.observe = observe
        self._policy = policy
        self._num_targets = 0
        self._latest: list[Granted] = []
        self._granted: list[Granted] = []

    def enter(self, target: Target) -> None:
        """Let the fetch read a file, or the next URL. Raises `MediaDenied`."""
        self._latest = []
        shown = target if isinstance(target, str) else target.origin
        for level, rule in self._policy.rules_of(target):
            if rule is None:
                raise self._without_rule(level, target)
            self._latest.append(Granted(level, rule, target))
            source = f"({level.scope}, rule {rule.id})"
            self.observe(Step("rule", True, f"{rule} allows {shown} {source}"))
        self._granted += self._latest
        self._num_targets += 1
        if not isinstance(target, str):
            by = self._strictest("max_redirects")
            most = by.rule.max_redirects
            if self._num_targets - 1 > most:
                message = f"There are more redirects than the {most} that {_host(by)} may have."
                raise self._denied(DenialReason.MAX_REDIRECTS, by, message, str(most))

    @property
    def max_bytes(self) -> int:
        return int(self._strictest("max_bytes").rule.max_bytes)

    @property
    def max_pixels(self) -> int:
        return int(self._strictest("max_pixels").rule.max_pixels)

    @property
    def timeout_s(self) -> float:
        return float(self._strictest("timeout_s").rule.timeout_s)

    def _strictest(self, name: str) -> Granted:
        return min(self._granted, key=lambda each: getattr(each.rule, name))

    def check_address(self, address: str) -> None:
        """Raises `MediaDenied` for an address that is not public and that a level does not name."""
        for each in () if is_public(address) else self._latest:
            if not is_within(address, known_networks(each.rule.networks)):
                message = f"{_host(each)} has an address that is not public, and "
                message += f"{_rules_of(each.level)} do not allow it."
                raise self._denied(DenialReason.ADDRESS, each, message, address)

    def check_type(self, content_type: str | None) -> None:
        """Raises `MediaDenied` for a type that a level does not allow."""
        for each in self._latest:
            allowed = each.rule.content_types
            # A file without a type is allowed where the rules name none: the bytes are examined.
            if content_type is None and not allowed:
                continue
            wanted = [one.lower() for one in allowed or _READ_TYPES]
            if not any(fnmatchcase(content_type or "", one) for one in wanted):
                message = f"{_host(each)} sent a file of the type {content_type or 'none'}, which "
                message += f"{_rules_of(each.level)} do not allow."
                raise self._denied(DenialReason.CONTENT_TYPE, each, message, content_type or "")

    def too_large(self) -> MediaDenied:
        by = self._strictest("max_bytes")
        most = by.rule.max_bytes
        is_file = isinstance(by.target, str)
        allowing = f"{_rules_of(by.level)} allow" if is_file else f"{_host(by)} may send"
        message = f"The file has more bytes than the {most} that {allowing}."
        return self._denied(DenialReason.MAX_BYTES, by, message, str(most))

    def too_slow(self) -> MediaDenied:
        by = self._strictest("timeout_s")
        most = f"{by.rule.timeout_s:g}"
        message = f"{_host(self._latest[0])} did not send the file within {most} s."
        return self._denied(DenialReason.TIMEOUT, by, message, most)

    def _denied(self, reason: DenialReason, by: Granted, message: str, detail: str) -> MediaDenied:
        where = _where(by.target)
        denial = Denial(reason, by.level.scope, **where, rule_id=by.rule.id, detail=detail)
        return MediaDenied(message, denial, param=self.param)

    def _without_rule(self, level: Level, target: Target) -> MediaDenied:
        denial = Denial(DenialReason.NO_RULE, level.scope, **_where(target))
        what = f"files in {denial.folder}" if denial.folder else denial.what
        message = f"The media rules of {level.whose} do not allow {what}. Ask an administrator to "
        return MediaDenied(f"{message}allow it.", denial, param=self.param)


def _where(target: Target) -> dict[str, Any]:
    """The columns of a refusal that name the folder of a file, or the host of a URL."""
    if isinstance(target, str):
        return {"folder": posixpath.dirname(target)}
    return {"scheme": target.scheme, "host": target.host, "port": target.port}


def _host(granted: Granted) -> str:
    assert isinstance(granted.target, Url)
    return granted.target.host


def _rules_of(level: Level) -> str:
    return f"the media rules of {level.whose}"
