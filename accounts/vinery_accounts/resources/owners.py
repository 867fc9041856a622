"""The names of limit owners: what a scope such as `key:12` means to people."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any

from django.db.models import Model

from vinery_accounts.models import OWNERS, ApiKey, LimitScope
from vinery_accounts.services.access import Access


def owners_of(access: Access, scopes: Iterable[str]) -> dict[str, str]:
    """Return a phrase for each scope, such as `key:12`. An owner that was removed, or that the
    caller may not see, is named by its id. One query for each table."""
    wanted = set(scopes)
    ids: defaultdict[str, set[int]] = defaultdict(set)
    for scope in wanted:
        kind, _, owner = scope.partition(":")
        if kind in OWNERS and owner.isdecimal():
            ids[kind].add(int(owner))
    names = {
        f"{kind}:{pk}": name
        for kind, found in ids.items()
        for pk, name in names_of(access, OWNERS[kind], found).items()
    }
    return {scope: _phrase(scope, names.get(scope)) for scope in wanted}


def names_of(access: Access, table: type[Model], ids: Collection[int]) -> dict[int, str]:
    """Return the names of the rows that the caller may see, by id. Several keys may share a
    name, so a key's name includes its hint, owner and project."""
    rows = access.rows(table).filter(pk__in=ids)
    if table is ApiKey:
        rows = rows.select_related("owner", "project")
    return {row.pk: _name(row) for row in rows}


def _name(row: Any) -> str:
    if isinstance(row, ApiKey):
        return f"{row.name} ({row.hint}, {row.owner}, {row.project.name})"
    return getattr(row, "name", "") or str(row)


def _phrase(scope: str, name: str | None) -> str:
    kind, _, owner = scope.partition(":")
    if not owner:
        return "the whole platform"
    if kind == LimitScope.END_USER:
        return f"each end user of the project {name or owner}"
    return f"the {'organisation' if kind == 'organization' else kind} {name or owner}"
