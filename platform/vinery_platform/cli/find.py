"""The rows that the words of a command line mean. Raises `Failure` for none or several."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, TypeVar

from django.db.models import Model, QuerySet

from vinery_accounts.models import ApiKey, Organization, Project, User, Webhook
from vinery_platform.cli.resource import Option
from vinery_platform.cli.shape import Failure

RowT = TypeVar("RowT", bound=Model)


def only(rows: QuerySet[RowT], missing: str, several: str = "") -> RowT:
    """Return the only row. The texts are the messages for none and for several."""
    found = list(rows[:2])
    if len(found) != 1:
        raise Failure(several if found else missing)
    return found[0]


def user_named(username: str) -> User:
    missing = f"There is no user {username}. See: vinery user list"
    return only(User.objects.filter(username=username), missing)


def organization_named(name: str) -> Organization:
    missing = f"There is no organisation {name}. See: vinery organization list"
    return only(Organization.objects.filter(name=name), missing)


def project_named(name: str) -> Project:
    """Return the project `organisation/project`, or the only project of this name."""
    projects = Project.objects.select_related("organization")
    organization, _, own = name.partition("/")
    in_organization = projects.filter(organization__name=organization, name=own)
    return only(
        in_organization if in_organization.exists() else projects.filter(name=name),
        f"There is no project {name}. See: vinery project list",
        f"Several projects are named {name}. Write ORGANISATION/{name}.",
    )


def key_named(id_or_hint: str) -> ApiKey:
    keys = ApiKey.objects.select_related("owner", "project__organization")
    by = {"pk": int(id_or_hint)} if id_or_hint.isdecimal() else {"hint": id_or_hint}
    return only(
        keys.filter(**by),
        f"There is no key {id_or_hint}. See: vinery key list",
        f"Several keys have the hint {id_or_hint}. Use the id from: vinery key list",
    )


def webhook_of(webhook_id: int) -> Webhook:
    missing = f"There is no webhook {webhook_id}. See: vinery alerts webhooks"
    return only(Webhook.objects.filter(pk=webhook_id), missing)


FINDERS: Final[dict[str, Callable[[str], Any]]] = {
    "key": key_named,
    "user": user_named,
    "project": project_named,
    "organization": organization_named,
}


def ids_of(kind: str, words: Iterable[str] | None) -> list[int]:
    """Return the ids of keys, users, projects or organisations. A number is an id, even of a
    removed row, because usage records outlive it."""
    find = FINDERS[kind]
    return [int(word) if word.isdecimal() else find(word).pk for word in words or ()]


def metavar_of(kind: str) -> str:
    return "ID_OR_HINT" if kind == "key" else "ID_OR_NAME"


def option_of(kind: str) -> Option:
    """Return a filter by the name of one row."""
    return Option(f"--{kind}", metavar="NAME", find=lambda name: FINDERS[kind](name).pk)


def options_of(kind: str) -> Option:
    """Return a filter by the ids or names of several rows."""
    find = partial(ids_of, kind)
    return Option(f"--{kind}", metavar=metavar_of(kind), is_list=True, find=find)
