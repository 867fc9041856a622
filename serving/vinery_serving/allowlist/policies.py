"""The media rules of all callers in the memory of one web process.

A thread calls `refresh` after each commit, as for keys; the event loop calls `policy_of`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeVar

from vinery_accounts.models import ScopedRow
from vinery_serving.allowlist.models import MediaFolder, MediaLimit, MediaRule
from vinery_serving.media.policy import FolderRule, Level, MediaPolicy, UrlRule

RowT = TypeVar("RowT", bound=ScopedRow)
RuleT = TypeVar("RuleT", MediaRule, MediaFolder)
# The ids of an organisation and of a project; 0 for none.
Scope = tuple[int, int]
_PLATFORM: Final[Scope] = (0, 0)
# Addresses are decided by the platform's rule: narrower rules leave them as they are.
_ALL_NETWORKS: Final = ("0.0.0.0/0", "::/0")
_NOTHING: Final = Level("platform", urls=(), folders=())


@dataclass(frozen=True, slots=True)
class Rules:
    """The levels that have rules, by organisation or project."""

    platform: Level = _NOTHING
    organizations: Mapping[int, Level] = field(default_factory=dict)
    projects: Mapping[int, Level] = field(default_factory=dict)

    @classmethod
    def of(cls, levels: Mapping[Scope, Level]) -> Self:
        """Return the rules of these levels. The platform has no wider level: without a rule
        nothing is allowed."""
        widest = levels.get(_PLATFORM, _NOTHING)
        return cls(
            Level("platform", "", widest.urls or (), widest.folders or (), widest.max_media),
            {scope[0]: level for scope, level in levels.items() if scope[0] and not scope[1]},
            {scope[1]: level for scope, level in levels.items() if scope[1]},
        )


class MediaPolicies:
    """The policies of all callers. Before the first `refresh`, nothing is allowed."""

    def __init__(self, rules: Rules | None = None) -> None:
        self._rules = rules or Rules()

    def refresh(self) -> None:
        """Read all rules: three queries. Raises `django.db.Error`; the rules stay as they were."""
        self._rules = read_rules()

    def policy_of(self, organization_id: int | None, project_id: int | None) -> MediaPolicy:
        """Return the policy of a caller; None for a caller without a key. No query."""
        rules = self._rules
        own = (
            rules.organizations.get(organization_id or 0),
            rules.projects.get(project_id or 0),
        )
        return MediaPolicy((rules.platform, *(level for level in own if level is not None)))


def read_rules() -> Rules:
    """Read the rules of the platform, and of all organisations and projects."""
    urls = _by_scope(MediaRule)
    folders = _by_scope(MediaFolder)
    limits = _by_scope(MediaLimit)
    levels = {}
    for scope in urls.keys() | folders.keys() | limits.keys():
        own = urls.get(scope), folders.get(scope), limits.get(scope)
        row: ScopedRow = next(rows[0] for rows in own if rows)
        levels[scope] = level_of(row.scope, row.whose, *own)
    return Rules.of(levels)


def _by_scope(table: type[RowT]) -> dict[Scope, list[RowT]]:
    rows: Any = table._default_manager.select_related("organization", "project__organization")
    found: dict[Scope, list[RowT]] = {}
    for row in rows.order_by("id"):
        found.setdefault((row.organization_id or 0, row.project_id or 0), []).append(row)
    return found


def level_of(
    scope: str,
    name: str,
    urls: Sequence[MediaRule] | None,
    folders: Sequence[MediaFolder] | None,
    limits: Sequence[MediaLimit] | None,
) -> Level:
    """Return a level. Inactive rules allow nothing, but a level that has only such rules allows
    nothing at all."""
    return Level(
        scope,
        name,
        None if urls is None else tuple(map(_url_rule, _most_specific_first(urls))),
        None if folders is None else tuple(map(_folder_rule, _active(folders))),
        limits[0].max_media if limits else None,
    )


def _active(rules: Iterable[RuleT]) -> list[RuleT]:
    return [rule for rule in rules if rule.is_active]


def _most_specific_first(rules: Iterable[MediaRule]) -> list[MediaRule]:
    """Return the active rules: hosts before wildcards, long wildcards before short ones, so that
    the first match is the rule that an administrator wrote for the host."""
    return sorted(_active(rules), key=lambda rule: (rule.host.startswith("*."), -len(rule.host)))


def _url_rule(row: MediaRule) -> UrlRule:
    return UrlRule(
        id=row.pk,
        host=row.host,
        schemes=frozenset(row.schemes),
        ports=frozenset(row.ports),
        content_types=tuple(row.content_types),
        max_bytes=row.max_bytes,
        max_pixels=row.max_pixels,
        max_redirects=row.max_redirects,
        timeout_s=row.timeout_s,
        networks=tuple(row.networks) if row.organization_id is None else _ALL_NETWORKS,
    )


def _folder_rule(row: MediaFolder) -> FolderRule:
    return FolderRule(row.pk, row.folder, row.max_bytes, row.max_pixels)
