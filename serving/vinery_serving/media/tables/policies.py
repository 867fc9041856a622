"""The media rules of all callers in the memory of one web process.

A thread calls `refresh` after each commit, as for keys; the event loop calls `policy_of`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final, TypeVar

from vinery_accounts.models import ScopedRow
from vinery_serving.media.rules import NOTHING, FolderRule, Level, MediaPolicy, UrlRule
from vinery_serving.media.tables.models import MediaFolder, MediaLimit, MediaRule

RowT = TypeVar("RowT", bound=ScopedRow)
RuleT = TypeVar("RuleT", UrlRule, FolderRule)
# The ids of an organisation and of a project; 0 for none.
Scope = tuple[int, int]
Levels = dict[Scope, Level]
_PLATFORM: Final[Scope] = (0, 0)


class MediaPolicies:
    """The policies of all callers. Before the first `refresh`, nothing is allowed."""

    def __init__(self, levels: Mapping[Scope, Level] | None = None) -> None:
        self.levels: Levels = {}
        self.assume(levels or {})

    def assume(self, levels: Mapping[Scope, Level]) -> None:
        """Use these rules until the next `refresh`. The platform has no wider level: without a rule
        it allows nothing."""
        widest = levels.get(_PLATFORM, NOTHING)
        platform = replace(widest, urls=widest.urls or (), folders=widest.folders or ())
        self.levels = {**levels, _PLATFORM: platform}

    def refresh(self) -> None:
        """Read all rules: three queries. Raises `django.db.Error`; the rules stay as they were."""
        self.assume(read_levels())

    def policy_of(self, organization_id: int | None, project_id: int | None) -> MediaPolicy:
        """Return the policy of a caller; None for a caller without a key. No query."""
        organization, project = organization_id or 0, project_id or 0
        scopes = dict.fromkeys((_PLATFORM, (organization, 0), (organization, project)))
        levels = self.levels
        return MediaPolicy(tuple(levels[scope] for scope in scopes if scope in levels))


def read_levels() -> dict[Scope, Level]:
    urls, folders, limits = _by_scope(MediaRule), _by_scope(MediaFolder), _by_scope(MediaLimit)
    levels = {}
    for scope in urls.keys() | folders.keys() | limits.keys():
        own = urls.get(scope), folders.get(scope), limits.get(scope)
        row: ScopedRow = next(rows[0] for rows in own if rows)
        name = "" if scope == _PLATFORM else row.whose
        levels[scope] = level_of(row.scope, name, *own)
    return levels


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
    """Return a level. Inactive rules still narrow: a level with only such rules allows nothing."""
    if urls is not None:
        # Hosts before wildcards, and long wildcards before short: the first match is the rule that
        # an administrator wrote for the host.
        urls = sorted(urls, key=lambda rule: (rule.host.startswith("*."), -len(rule.host)))
    return Level(
        scope,
        name,
        None if urls is None else _rules(UrlRule, urls),
        None if folders is None else _rules(FolderRule, folders),
        limits[0].max_media if limits else None,
    )


def _rules(kind: type[RuleT], rows: Iterable[MediaRule | MediaFolder]) -> tuple[RuleT, ...]:
    """Return the active rows as rules: their fields are columns."""
    rules: list[RuleT] = []
    for row in rows:
        values: dict[str, Any] = {}
        for name in (each.name for each in fields(kind)):
            value = getattr(row, name)
            values[name] = tuple(value) if isinstance(value, list) else value
        if isinstance(row, MediaRule) and row.organization_id is not None:
            # The platform's rule decides on addresses: narrower rules allow all networks.
            values["networks"] = ("0.0.0.0/0", "::/0")
        if row.is_active:
            rules.append(kind(**values))
    return tuple(rules)
