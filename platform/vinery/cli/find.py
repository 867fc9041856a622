"""The rows that the words of a command line mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, TypeVar

from django.db.models import Model, QuerySet

from accounts.models import ApiKey, Organization, Project, User, Webhook
from vinery.cli.resource import Option
from vinery.cli.shape import Failure

RowT = TypeVar("RowT", bound=Model)


def only(rows: QuerySet[RowT], missing: str, several: str = "") -> RowT:
    """Return the only row. Raises `Failure` with one of the texts for none or several."""
    found = list(rows[:2])
    if len(found) != 1:
        raise Failure(several if found else missing)
    return found[0]


def user_named(username: str) -> User:
    """Return the user of this name. Raises `Failure`."""
    missing = f"There is no user {username}. See: vinery user list"
    return only(User.objects.filter(username=username), missing)


def organization_named(name: str) -> Organization:
    """Return the organisation of this name. Raises `Failure`."""
    missing = f"There is no organisation {name}. See: vinery organization list"
    return only(Organization.objects.filter(name=name), missing)


def project_named(name: str) -> Project:
    """Return the project `organisation/project`, or the only project of this name.

    Raises `Failure` for none or several.
    """
    projects = Project.objects.select_related("organization")
    organization, _, own = name.partition("/")
    in_organization = projects.filter(organization__name=organization, name=own)
    return only(
        in_organization if in_organization.exists() else projects.filter(name=name),
        f"There is no project {name}. See: vinery project list",
        f"Several projects are named {name}. Write ORGANISATION/{name}.",
    )


def key_named(id_or_hint: str) -> ApiKey:
    """Return the key of this id or hint. Raises `Failure` for none or several."""
    keys = ApiKey.objects.select_related("owner", "project__organization")
    by = {"pk": int(id_or_hint)} if id_or_hint.isdecimal() else {"hint": id_or_hint}
    return only(
        keys.filter(**by),
        f"There is no key {id_or_hint}. See: vinery key list",
        f"Several keys have the hint {id_or_hint}. Use the id from: vinery key list",
    )


def webhook_of(webhook_id: int) -> Webhook:
    """Return the webhook of this id. Raises `Failure`."""
    missing = f"There is no webhook {webhook_id}. See: vinery alerts webhooks"
    return only(Webhook.objects.filter(pk=webhook_id), missing)


METAVARS: Final = {
    "key": "ID_OR_HINT",
    "user": "ID_OR_NAME",
    "project": "ID_OR_NAME",
    "organization": "ID_OR_NAME",
}
FINDERS: Final[dict[str, Callable[[str], Any]]] = {
    "key": key_named,
    "user": user_named,
    "project": project_named,
    "organization": organization_named,
}


def ids_of(kind: str, words: Iterable[str] | None) -> list[int]:
    """Return the ids of keys, users, projects or organisations. A number is an id, even of a
    removed row, because usage records outlive it. Raises `Failure` for an unknown name."""
    find = FINDERS[kind]
    return [int(word) if word.isdecimal() else find(word).pk for word in words or ()]


def option_of(kind: str) -> Option:
    """Return a filter by the name of one row."""
    return Option(f"--{kind}", metavar="NAME", find=lambda name: FINDERS[kind](name).pk)


def options_of(kind: str) -> Option:
    """Return a filter by the ids or names of several rows."""
    ids = partial(ids_of, kind)
    return Option(f"--{kind}", metavar=METAVARS[kind], is_list=True, find=ids)
