"""A managed resource, and the one way in which every front end reads and writes it.

    API, console, admin, commands -> Resource -> vinery_accounts.access -> models

A resource checks permissions itself: a front end passes the `Access` of its caller and gets
`PermissionDenied`, Django's `ValidationError` or `Conflict`."""

import pkgutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from operator import attrgetter
from typing import Any, ClassVar, Final, Generic, TypeVar

from django.core.exceptions import PermissionDenied
from django.db.models import Count, Model, QuerySet
from django.utils.text import get_text_list
from rest_framework import serializers

from vinery_accounts import resources
from vinery_accounts.access import changes
from vinery_accounts.access.access import Access, Action
from vinery_accounts.models import ApiKey, Organization, Project, User
from vinery_accounts.resources import fields
from vinery_accounts.resources.fields import Filters, StrictSerializer

RowT = TypeVar("RowT", bound=Model)

EVERYTHING: Final = Access(None, is_superuser=True)  # the access of the command line


class Conflict(Exception):
    """The row is in a state in which the action is impossible. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A row whose secret was just issued. The secret is shown once."""

    row: Any
    secret: str


@dataclass(frozen=True, slots=True)
class RowAction:
    """Something that is done to one row, besides changing and removing it."""

    name: str
    run: Callable[..., Any]
    """Takes the row and the values of `serializer`. Returns the row, an `Issued` or a mapping."""
    help: str  # one sentence, imperative. The API, the admin and the commands show it.
    done: str = ""  # the state of the row afterwards, such as `paused`
    serializer: type[StrictSerializer] = fields.EmptySerializer
    answer: type[serializers.Serializer[Any]] | None = None  # what the API returns; None: the row
    status: int = 200
    is_of_list: bool = False
    """Whether it is done to no row: `run` takes the access of the caller instead of the row."""
    permission: Action = Action.MANAGE


class Resource(Generic[RowT]):
    """A managed resource. Subclasses declare; front ends read."""

    model: type[RowT]
    path: ClassVar[str] = ""
    """Under `/api/` and, with a `title`, under `/console/`; empty: another file gives it URLs."""
    title: ClassVar[str] = ""
    """In the menu of the console, whose pages are generated; empty: it has none, or its own."""
    lookup: ClassVar[tuple[str, str]] = ("pk", f"[0-9]{{1,{fields.MAX_ID_DIGITS}}}")
    """The column that the API names a row by, and a pattern."""
    field_names: ClassVar[str] = ""  # the columns of `serializer`, where all follows from the model
    read_only: ClassVar[str] = ""  # those of `field_names` that actions set
    fixed: ClassVar[str] = ""  # those of `field_names` that only a new row takes
    serializer: ClassVar[type[serializers.Serializer[Any]]]
    bodies: ClassVar[Mapping[str, type[serializers.Serializer[Any]]]] = {}
    """What the API reads, where it is not `serializer`, by the view: `create`."""
    answers: ClassVar[Mapping[str, type[serializers.Serializer[Any]]]] = {}
    """What the API returns, where it is not `serializer`, by the view: `create`, `retrieve`."""
    filters: ClassVar[type[Filters]] = Filters
    related: ClassVar[tuple[str, ...]] = ()
    ordering: ClassVar[tuple[str, ...]] = ("-id",)
    one: ClassVar[str]
    many: ClassVar[str]
    verbs: ClassVar[frozenset[str]] = frozenset()
    """Which of `create`, `change` and `remove` there are."""
    removal: ClassVar[Action] = Action.MANAGE
    help: ClassVar[Mapping[str, str]] = {}  # what a verb does, where the general text is not enough
    actions: ClassVar[tuple[RowAction, ...]] = ()
    read_scope: ClassVar[str | None] = None
    """The scope of keys that may read the resource, besides `manage`."""
    empty_text: ClassVar[str] = ""  # what the admin shows when there is no row
    columns: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    """The columns of the command's table, see `columns_of`."""
    page_filters: ClassVar[tuple[str, ...]] = ()  # the filters that pages of the console offer
    search: ClassVar[tuple[str, ...]] = ()
    """Lookups that the admin searches in."""
    counted: ClassVar[Mapping[str, Count]] = {}
    """What is counted for `columns`, by the name of the number."""

    def __init_subclass__(cls) -> None:
        if "field_names" in vars(cls):
            cls.serializer = _serializer_of(cls)

    def notice(self) -> str:
        """Return what pages say above the rows."""
        return ""

    def writable(self) -> list[str]:
        return [name for name, field in self.serializer().fields.items() if not field.read_only]

    def rows(self, access: Access) -> QuerySet[RowT]:
        rows = access.rows(self.model)
        return rows.select_related(*self.related) if self.related else rows

    def listed(self, access: Access) -> QuerySet[RowT]:
        """Return the rows with what `columns` need of each."""
        return self.rows(access).annotate(**self.counted) if self.counted else self.rows(access)

    def load(self, rows: Sequence[RowT]) -> Sequence[Any]:
        """Return what the serializer shows of these rows, read at once."""
        return rows

    def extra_columns(self, rows: Sequence[Any]) -> Sequence[Mapping[str, Any]]:
        """Return further values of each row for the command's table, read at once for all."""
        return [{}] * len(rows)

    def check(self, access: Access, row: RowT, stored: RowT | None = None) -> None:
        """Raise `PermissionDenied` or `ValidationError` unless the caller may store the row.
        `stored` is the row before the change; None for a new row."""
        require(access, Action.MANAGE, row)

    def check_values(self, values: Mapping[str, Any], stored: RowT | None = None) -> None:
        """Raise ValidationError for values that are not valid together."""

    def may_create(self, access: Access) -> bool:
        """Return whether pages offer to create a row."""
        is_of_organization = "organization" in self.serializer().fields
        may = access.leads_organization if is_of_organization else access.is_leader
        return "create" in self.verbs and may

    def hidden(self, access: Access, row: RowT | None) -> frozenset[str]:
        return frozenset()

    def initial(self, access: Access) -> Mapping[str, Any]:
        return {}

    def choices(self, access: Access) -> Mapping[str, Any]:
        """Return the choices of forms, by column, where they depend on the caller. A column of text
        offers them, and takes others."""
        return {}

    def create(self, access: Access, values: Mapping[str, Any]) -> Any:
        """Store a new row. Returns the row, or an `Issued`."""
        row = self.model(**values)
        self.check(access, row)
        return changes.add(row)

    def change(self, access: Access, row: RowT, values: Mapping[str, Any]) -> RowT:
        self.check(access, row, row)
        return changes.change(row, **values)

    def remove(self, access: Access, row: RowT) -> None:
        require(access, self.removal, row)
        changes.remove(row)

    def act(self, access: Access, action: RowAction, row: RowT | None, **values: Any) -> Any:
        """Run an action. Raises `PermissionDenied`, ValidationError and `Conflict`."""
        if row is None:
            return action.run(access, **values)
        require(access, action.permission, row)
        return action.run(row, **values)

    def affected(self, does: str, row: Model) -> str:
        """Return a sentence about the other rows that go with a row, or that it stops: This also
        removes 2 API keys and 1 limit."""
        if does == "remove":
            return _counted("This also removes", changes.owned_rows(row))
        path = _PATHS_TO_KEYS.get(type(row), "")
        if does != "deactivate" or not path:
            return ""
        return _counted("This stops", ApiKey.objects.filter(revoked_at=None, **{path: row}))

    def action(self, name: str) -> RowAction:
        return next(each for each in self.actions if each.name == name)

    def body_of(self, view: str) -> type[serializers.Serializer[Any]]:
        of_actions = {each.name: each.serializer for each in self.actions}
        return {**of_actions, **self.bodies}.get(view, self.serializer)

    def answer_of(self, view: str) -> type[serializers.Serializer[Any]]:
        of_actions = {each.name: each.answer for each in self.actions if each.answer}
        return {**of_actions, **self.answers}.get(view, self.serializer)


_PATHS_TO_KEYS: Final[Mapping[type[Model], str]] = {
    User: "owner",
    Project: "project",
    Organization: "project__organization",
}


def _counted(verb: str, rows: Iterable[Model]) -> str:
    words = [
        f"{num:,} {kind.verbose_name if num == 1 else kind.verbose_name_plural}"
        for kind, num in Counter(each._meta for each in rows).items()
    ]
    return f"{verb} {get_text_list(words, 'and')}." if words else ""


def _serializer_of(cls: type[Resource[Any]]) -> type[serializers.Serializer[Any]]:
    is_record = cls.verbs.isdisjoint({"create", "change"})
    base = serializers.ModelSerializer if is_record else fields.StrictModelSerializer
    meta = {
        "model": cls.model,
        "fields": cls.field_names.split(),
        "read_only_fields": cls.read_only.split(),
        "fixed": cls.fixed.split(),
    }
    members = {"Meta": type("Meta", (), meta), "__doc__": f"{cls.one[:1].upper()}{cls.one[1:]}."}
    return type(f"{cls.model.__name__}Serializer", (base,), members)


@cache
def registered() -> dict[str, Resource[Any]]:
    """Return the resources of this room by `path`. A new file needs no other mention."""
    found = {}
    for each in pkgutil.iter_modules(resources.__path__, f"{resources.__name__}."):
        for value in vars(import_module(each.name)).values():
            if isinstance(value, Resource) and value.path:
                found[value.path] = value
    return found


class PlatformResource(Resource[RowT]):
    """Rows that only administrators of the platform see."""

    def rows(self, access: Access) -> QuerySet[RowT]:
        rows = self.model._default_manager.all()
        seen = rows if access.is_superuser else rows.none()
        return seen.select_related(*self.related) if self.related else seen


@dataclass(frozen=True, slots=True)
class Attribute:
    """A column that is an attribute of the row, or of a related row."""

    path: str

    def __call__(self, row: Any) -> Any:
        return attrgetter(self.path)(row)


def columns_of(words: str, **functions: Callable[[Any], Any]) -> dict[str, Callable[[Any], Any]]:
    """Return columns of a table, by name: functions of a row. A word such as `project=project.name`
    is a name and an attribute, unless they are equal or `functions` has the name."""
    pairs = (word.partition("=") for word in words.split())
    return {name: Attribute(path or name) for name, _, path in pairs} | functions


def require(access: Access, action: Action, row: Model) -> None:
    """Raise `PermissionDenied` for what the caller's role does not allow."""
    if access.may(action, row):
        return
    if access.is_of_key:
        owner = User.objects.filter(pk=access.user_id or 0).first()
        if owner is not None and Access.of(owner).may(action, row):
            limits = (
                "an admin key changes no administrators and no admin keys"
                if access.is_superuser
                else "a key is limited to its project"
            )
            text = f"You may do this, but not with a key: {limits}. Sign in and use the session."
            raise PermissionDenied(text)
    raise PermissionDenied("Your role does not allow this. Ask an owner or administrator.")


def require_administrator(access: Access) -> None:
    """Raise `PermissionDenied` for other callers than administrators of the platform."""
    if not access.is_superuser:
        raise PermissionDenied("Only an administrator of the whole platform may do this.")


def activation(permission: Action, more: str = "") -> tuple[RowAction, RowAction]:
    """`more` is a further effect of `deactivate`."""
    return (
        RowAction(
            "activate",
            lambda row: changes.set_active(row, True),
            "Let it work again, and with it its keys.",
            "active",
            permission=permission,
        ),
        RowAction(
            "deactivate",
            lambda row: changes.set_active(row, False),
            "Stop it until it is activated again. Its keys are refused within a second, and their "
            f"running requests end.{more}",
            "deactivated",
            permission=permission,
        ),
    )
