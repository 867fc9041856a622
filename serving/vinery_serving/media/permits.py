"""What the rules of all levels together allow for one URL or file.

Each level that has rules must allow it, and the strictest of their values counts. A permit knows
which rule a value is from, so that a refusal names it.
"""

import posixpath
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final, Generic, TypeVar

from vinery_accounts.outbound.addresses import Network, is_within, read_networks, why_not_public
from vinery_accounts.outbound.urls import Url
from vinery_serving.media.denials import Denial, DenialReason, MediaDenied
from vinery_serving.media.files import is_inside
from vinery_serving.media.policy import FolderRule, Level, MediaPolicy, UrlRule

# What can be decoded, and the types that stores of files give all of them.
_READ_TYPES: Final = (
    *("image/*", "video/*", "application/pdf"),
    *("application/octet-stream", "binary/octet-stream"),
)

RuleT = TypeVar("RuleT", UrlRule, FolderRule)


@dataclass(frozen=True, slots=True)
class Granted(Generic[RuleT]):
    """A rule that allows something at its level."""

    level: Level
    rule: RuleT


@dataclass(frozen=True, slots=True)
class UrlPermit:
    """The rules that allow a URL, one for each level that has rules."""

    url: Url
    granted: tuple[Granted[UrlRule], ...]
    param: str

    def check_address(self, address: str) -> None:
        """Raises `MediaDenied` for an address that is not public and that a level does not name."""
        why = why_not_public(address)
        if why is None:
            return
        for each in self.granted:
            if not is_within(address, _networks(each.rule.networks)):
                raise self.denied(
                    DenialReason.ADDRESS,
                    each,
                    f"{self.url.host} has an address that is not public ({why}), and "
                    f"{_whose(each.level)} do not allow it.",
                    address,
                )

    def check_type(self, content_type: str | None) -> None:
        """Raises `MediaDenied` for a type that a level does not allow."""
        for each in self.granted:
            if not is_type_allowed(content_type, each.rule.content_types):
                raise self.denied(
                    DenialReason.CONTENT_TYPE,
                    each,
                    f"{self.url.host} sent a file of the type {content_type or 'none'}, which "
                    f"{_whose(each.level)} do not allow.",
                    content_type or "",
                )

    def denied(
        self, reason: DenialReason, by: Granted[UrlRule], message: str, detail: str
    ) -> MediaDenied:
        """The refusal by a value of a rule."""
        denial = _denial(reason, by.level, self.url, rule_id=by.rule.id, detail=detail)
        return MediaDenied(message, denial, param=self.param)


@dataclass(frozen=True, slots=True)
class FilePermit:
    """The rules that allow a file, one for each level that has rules."""

    path: str
    granted: tuple[Granted[FolderRule], ...]
    param: str

    @property
    def max_bytes(self) -> int:
        return min(each.rule.max_bytes for each in self.granted)

    @property
    def max_pixels(self) -> int:
        return min(each.rule.max_pixels for each in self.granted)

    def too_large(self) -> MediaDenied:
        by = min(self.granted, key=lambda each: each.rule.max_bytes)
        number = by.rule.max_bytes
        denial = Denial(
            DenialReason.MAX_BYTES,
            by.level.scope,
            folder=posixpath.dirname(self.path),
            rule_id=by.rule.id,
            detail=str(number),
        )
        message = f"The file has more bytes than the {number} that {_whose(by.level)} allow."
        return MediaDenied(message, denial, param=self.param)


def permit_url(policy: MediaPolicy, url: Url, param: str) -> UrlPermit:
    """Raises `MediaDenied` if a level allows the host not at all."""
    granted = []
    for level, rule in policy.url_rules(url.scheme, url.host, url.port):
        if rule is None:
            raise _no_url_rule(level, url, param)
        granted.append(Granted(level, rule))
    if not granted:
        raise _no_url_rule(Level("platform"), url, param)
    return UrlPermit(url, tuple(granted), param)


def permit_file(policy: MediaPolicy, path: str, param: str) -> FilePermit:
    """Raises `MediaDenied` if a level allows no folder above the file."""
    granted = []
    for level in policy.levels:
        if level.folders is None:
            continue
        inside = (rule for rule in level.folders if is_inside(path, rule.folder))
        rule = next(inside, None)
        if rule is None:
            raise _no_folder_rule(level, path, param)
        granted.append(Granted(level, rule))
    if not granted:
        raise _no_folder_rule(Level("platform"), path, param)
    return FilePermit(path, tuple(granted), param)


def _no_url_rule(level: Level, url: Url, param: str) -> MediaDenied:
    message = f"{_whose(level)} do not allow {url.origin}. Ask an administrator to allow it."
    return MediaDenied(_sentence(message), _denial(DenialReason.NO_RULE, level, url), param=param)


def _no_folder_rule(level: Level, path: str, param: str) -> MediaDenied:
    folder = posixpath.dirname(path)
    message = f"{_whose(level)} do not allow files in {folder}. Ask an administrator to allow it."
    denial = Denial(DenialReason.NO_RULE, level.scope, folder=folder)
    return MediaDenied(_sentence(message), denial, param=param)


def _denial(
    reason: DenialReason, level: Level, url: Url, rule_id: int | None = None, detail: str = ""
) -> Denial:
    return Denial(
        reason,
        level.scope,
        scheme=url.scheme,
        host=url.host,
        port=url.port,
        rule_id=rule_id,
        detail=detail,
    )


def _whose(level: Level) -> str:
    name = {"organization": "organisation"}.get(level.scope, level.scope)
    return f"the media rules of the {name}{f' {level.name}' if level.name else ''}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def is_type_allowed(content_type: str | None, allowed: tuple[str, ...]) -> bool:
    """A file without a type is allowed where the rules name none: its bytes are examined."""
    if content_type is None:
        return not allowed
    return any(fnmatchcase(content_type, each.lower()) for each in allowed or _READ_TYPES)


@lru_cache(maxsize=1024)
def _networks(texts: tuple[str, ...]) -> tuple[Network, ...]:
    return read_networks(texts)
