"""The rows that words of a command line mean. Needs Django to be started."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from vinery.cli.shape import Failure

if TYPE_CHECKING:
    from accounts.models import ApiKey, Organization, Project, User


def user_named(username: str) -> User:
    """Raises `Failure` when there is nobody of this name."""
    from accounts.models import User

    found = User.objects.filter(username=username).first()
    if found is None:
        raise Failure(f"There is no user {username}. See: vinery user list")
    return found


def organization_named(name: str) -> Organization:
    """Raises `Failure` when there is none of this name."""
    from accounts.models import Organization

    found = Organization.objects.filter(name=name).first()
    if found is None:
        raise Failure(f"There is no organisation {name}. See: vinery organization list")
    return found


def project_named(name: str) -> Project:
    """By `organisation/project`, or by its own name where only one project has it.

    Raises `Failure` for none or several.
    """
    from accounts.models import Project

    projects = Project.objects.select_related("organization")
    organization, _, own = name.partition("/")
    found = list(projects.filter(organization__name=organization, name=own)[:1])
    found = found or list(projects.filter(name=name)[:2])
    if not found:
        raise Failure(f"There is no project {name}. See: vinery project list")
    if len(found) > 1:
        raise Failure(f"Several projects are named {name}. Write ORGANISATION/{name}.")
    return found[0]


def key_named(id_or_hint: str) -> ApiKey:
    """Raises `Failure` for none or several."""
    from accounts.models import ApiKey

    keys = ApiKey.objects.select_related("owner", "project__organization")
    by = {"pk": int(id_or_hint)} if id_or_hint.isdecimal() else {"hint": id_or_hint}
    found = list(keys.filter(**by)[:2])
    if not found:
        raise Failure(f"There is no key {id_or_hint}. See: vinery key list")
    if len(found) > 1:
        raise Failure(f"Several keys have the hint {id_or_hint}. Use the id from: vinery key list")
    return found[0]


METAVARS: Final = {
    "key": "ID_OR_HINT",
    "user": "ID_OR_NAME",
    "project": "ID_OR_NAME",
    "organization": "ID_OR_NAME",
}


def ids_of(kind: str, words: Iterable[str] | None) -> list[int]:
    """The ids that are meant by ids or names of keys, users, projects or organisations. Books
    keep rows of what is gone: a number is taken for an id, whether or not there is such a row.

    Raises `Failure` for a name that nobody has.
    """
    find = {
        "key": key_named,
        "user": user_named,
        "project": project_named,
        "organization": organization_named,
    }[kind]
    return [int(word) if word.isdecimal() else find(word).pk for word in words or ()]
