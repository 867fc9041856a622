"""Commands of resources: list, changes, removal and actions, as each resource declares.

Options come from the fields of serializers, tables from columns.

The command line has the access of an administrator. Django must be loaded before this module.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from rest_framework import serializers
from rest_framework.fields import empty

from vinery_accounts.access import audit
from vinery_accounts.models import ApiKey, Organization, Project, User, Webhook
from vinery_accounts.resources.base import EVERYTHING, Issued, Resource, RowAction, registered
from vinery_accounts.resources.fields import DatedFilters, VisibleRelatedField
from vinery_platform.cli import shape
from vinery_serving.models.models import ServedModel

RowT = TypeVar("RowT", bound=Model)
_OF_PAGES: Final = frozenset({"limit", "cursor", "from", "to"})


# -- Rows that words mean


def only(rows: QuerySet[RowT], missing: str, several: str = "") -> RowT:
    """Return the only row. Raises `Failure` with one of the texts for none or several."""
    found = list(rows[:2])
    if len(found) != 1:
        raise shape.Failure(several if found else missing)
    return found[0]


def finder(rows: QuerySet[RowT], column: str, see: str, kind: str = "") -> Callable[[str], RowT]:
    """Return a function that finds a row by its text in a column. `see`: the command that lists
    such rows; the first word of `see` is the default of `kind`."""

    def find(word: str) -> RowT:
        missing = f"There is no {kind or see.partition(' ')[0]} {word}. See: vinery {see}"
        if column == "pk" and not word.isdecimal():
            raise shape.Failure(missing)
        return only(rows.filter(**{column: word}), missing)

    return find


user_named: Final = finder(User.objects.all(), "username", "user list")
webhook_of: Final = finder(Webhook.objects.all(), "pk", "alerts webhooks", "webhook")
organization_named: Final = finder(
    Organization.objects.all(), "name", "organization list", "organisation"
)


def model_named(name: str) -> ServedModel:
    missing = f"No model is served as {name}. See: vinery model list"
    return only(ServedModel.objects.select_related("engine").filter(name=name), missing)


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


FINDERS: Final[dict[str, Callable[[str], Any]]] = {
    "key": key_named,
    "user": user_named,
    "project": project_named,
    "organization": organization_named,
}
_BY_NAME: Final = {**FINDERS, "model": model_named}


def ids_of(kind: str, words: Iterable[str] | None) -> list[int]:
    """Return the ids of keys, users and so on. A number is an id, even of a removed row, because
    usage records outlive it."""
    return [int(word) if word.isdecimal() else _BY_NAME[kind](word).pk for word in words or ()]


def metavar_of(kind: str) -> str:
    return "ID_OR_HINT" if kind == "key" else "ID_OR_NAME"


# -- Fields as options


@dataclass(frozen=True, slots=True)
class Option:
    """How a field or a filter is written on the command line, where the default does not fit."""

    flag: str = ""
    parse: Callable[[str], Any] | None = None
    metavar: str | None = None
    help: str = ""
    clear: str = ""
    """The option that empties a list, such as `--any-model`."""
    is_required: bool = False
    is_list: bool = False
    """Whether it may be given several times although it has `parse`."""


def _grace_s(text: str) -> int:
    return 0 if text == "none" else int(shape.period(text).total_seconds())


_PARAMETERS: Final = {
    "grace_s": Option(
        "--grace",
        _grace_s,
        "PERIOD",
        "how long the old secret stays valid, like 30m, 12h or 7d; none: not at all",
    ),
    "time_limit_s": Option("--time-limit", metavar="S"),
}


def add_fields(
    parser: argparse.ArgumentParser,
    fields: Mapping[str, Any],
    options: Mapping[str, Option],
    names: Iterable[str] | None = None,
) -> None:
    """Add an option for each of these fields, by default for those of `options`. Options that are
    not given leave no attribute."""
    flags = dict(parser.get_default("flags") or {})
    for name in options if names is None else names:
        source = str(fields[name].source)
        option = options.get(name, Option())
        flags[source] = _add_option(parser, name, fields[name], option, f"field_{source}")
    parser.set_defaults(flags=flags)


def fields_of(resource: Resource[Any], *, is_change: bool = False) -> dict[str, Any]:
    """Return the fields that options can set: those without rows and JSON."""
    context = {"access": EVERYTHING, "is_change": is_change}
    unfit = VisibleRelatedField | serializers.JSONField
    return {
        name: each
        for name, each in resource.serializer(context=context).fields.items()
        if not each.read_only and not isinstance(each, unfit)
    }


def _add_option(
    parser: argparse.ArgumentParser, name: str, field: Any, option: Option, dest: str
) -> str:
    """Add the option of a field, and return its flag."""
    flag = option.flag or f"--{name.removeprefix('is_').replace('_', '-')}"
    target: dict[str, Any] = {"dest": dest, "default": argparse.SUPPRESS}
    text = option.help.replace("%", "%%") or shape.as_help(str(field.help_text or field.label))
    values = field.child if isinstance(field, serializers.ListField) else field
    details = target | {
        "required": option.is_required,
        "help": f"{text}{_default_text(field, option)}",
    }
    if option.is_list or (values is not field and option.parse is None):
        details["action"] = "append"
        details["help"] = f"{text}; may be given several times"
    if isinstance(values, serializers.BooleanField):
        details["action"] = argparse.BooleanOptionalAction
    elif isinstance(values, serializers.ChoiceField):
        details["choices"] = list(_by_word(values))
    else:
        details["metavar"] = option.metavar or flag[2:].upper().replace("-", "_")
        is_int = isinstance(values, serializers.IntegerField)
        is_float = isinstance(values, serializers.FloatField)
        details["type"] = option.parse or (int if is_int else float if is_float else str)
    group: Any = parser.add_mutually_exclusive_group() if option.clear else parser
    group.add_argument(flag, **details)
    if option.clear:
        text = f"instead of {flag}: none, which allows all" if "any" in option.clear else "none"
        group.add_argument(option.clear, action="store_const", const=[], help=text, **target)
    return flag


def _default_text(field: Any, option: Option) -> str:
    """Return the default of a field in words, unless the option's help may have the default."""
    value = field.default
    if option.parse is _grace_s:
        value = "1d" if value else "none"
    elif option.help or isinstance(value, bool) or value is empty or callable(value):
        return ""
    return "" if value in (None, "") else f" (default: {value})"


def _by_word(field: serializers.ChoiceField) -> dict[str, Any]:
    """Return the choices of a field by their words, which have no blanks."""
    return {str(each).replace(" ", "-"): each for each in field.choices}


def values_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the values of the options that were given, by column."""
    return {
        name.removeprefix("field_"): value
        for name, value in vars(arguments).items()
        if name.startswith("field_")
    }


def put(resource: Resource[Any], kind: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
    """Change the row with the columns `kind`, or create it. Returns the row."""
    with audit.writing():
        known = resource.rows(EVERYTHING).filter(**kind).first()
        if known is None:
            return resource.create(EVERYTHING, {**kind, **values})
        return resource.change(EVERYTHING, known, values)


# -- Lists


def _filters(resource: Resource[Any], without: Iterable[str]) -> Iterator[tuple[str, str, Any]]:
    """Yield the filters of a resource: name, kind of row or empty, and field."""
    for name, each in resource.filters().fields.items():
        if name not in _OF_PAGES and name not in without:
            kind = {"owner": "user"}.get(name, name.removesuffix("_id"))
            is_row = kind in _BY_NAME and isinstance(each, serializers.IntegerField)
            yield name, kind if is_row else "", each


def add_filters(
    parser: argparse.ArgumentParser,
    resource: Resource[Any],
    options: Mapping[str, Option],
    without: Iterable[str],
    usual: Any,
) -> None:
    """Add an option for each filter. Rows are named, and several may be if their column is an
    id."""
    for name, kind, each in _filters(resource, without):
        dest = f"filter_{name}"
        if not kind:
            _add_option(parser, name, each, options.get(name, Option()), dest)
            continue
        is_list = name.endswith("_id")
        parser.add_argument(
            f"--{kind}",
            dest=dest,
            default=argparse.SUPPRESS,
            action="append" if is_list else "store",
            metavar=metavar_of(kind),
            help=f"only of this {kind}{'; may be given several times' if is_list else ''}",
        )
    if issubclass(resource.filters, DatedFilters):
        shape.add_period(parser, usual)


def filtered(
    resource: Resource[Any], arguments: argparse.Namespace, without: Iterable[str] = ()
) -> QuerySet[Any]:
    """Return the rows that match the options, and the period if there is one. Raises `Failure` for
    an unknown name."""
    rows = resource.listed(EVERYTHING)
    if "since" in arguments:
        since, until = shape.period_of(arguments)
        rows = rows.filter(created_at__gte=since, created_at__lt=until)
    query = resource.filters(context={"access": EVERYTHING})
    for name, kind, each in _filters(resource, without):
        value = getattr(arguments, f"filter_{name}", "")
        if value == "":
            continue
        lookup = str(each.source)
        if kind and isinstance(value, list):
            lookup, value = f"{lookup}__in", ids_of(kind, value)
        elif kind:
            (value,) = ids_of(kind, [value])
        elif isinstance(each, serializers.ChoiceField):
            value = _by_word(each)[value]
        rows = query.narrow(rows, lookup, value)
    return rows


def add_list(
    actions: shape.Commands,
    resource: Resource[Any],
    text: str = "",
    *,
    name: str = "list",
    options: Mapping[str, Option] | None = None,
    without: Iterable[str] = (),
    usual: Any = None,
    narrow: Callable[[QuerySet[Any], argparse.Namespace], QuerySet[Any]] = lambda rows, _: rows,
) -> argparse.ArgumentParser:
    """Add a command that lists a resource, with all filters but `without`. The command prints the
    columns of the resource and of all rows together, or the body of the API with them as JSON.
    Of records that the server writes, the newest are shown."""
    columns = resource.columns
    is_of_records = resource.ordering[0].startswith("-") and "create" not in resource.verbs

    def run(arguments: argparse.Namespace) -> int:
        found = narrow(filtered(resource, arguments, without), arguments)
        shown = resource.load(list(found[: arguments.num] if is_of_records else found))
        body = resource.serializer(context={"access": EVERYTHING}).to_representation
        dictionaries = [
            {
                **body(row),
                **extras,
                **{name: column(row) for name, column in columns.items() if name not in extras},
            }
            for row, extras in zip(shown, resource.extra_columns(shown), strict=True)
        ]
        shape.print_rows(dictionaries, tuple(columns), as_json=arguments.json)
        return 0

    order = ", the newest first" if resource.ordering[0].startswith("-") else ""
    parser = shape.add_command(actions, name, run, text or f"List {resource.many}{order}.")
    add_filters(parser, resource, options or {}, without, usual)
    if is_of_records:
        shape.add_number(parser, "--num", 50, "how many")
    shape.add_json(parser)
    return parser


# -- Commands over one row


@dataclass(frozen=True, slots=True)
class RowCommands:
    """Adds commands over one row of a resource, which their argument names."""

    actions: shape.Commands
    resource: Resource[Any]
    find: Callable[[Any], Any]
    argument: str = "name"
    metavar: str = "NAME"
    help: str = "its name"
    suffix: str = ""
    """What the names of the commands end with, such as `-webhook`."""
    see: str = ""
    """The command that shows what becomes of the row {} after an action."""
    options: Mapping[str, Option] = field(default_factory=dict)

    def add(
        self, name: str, run: Callable[[Any, argparse.Namespace], int | str], text: str = ""
    ) -> argparse.ArgumentParser:
        """Add a command. `run` takes the row and the arguments, and its docstring is the default
        of `text`."""

        def find_and_run(arguments: argparse.Namespace) -> int | str:
            return run(self.find(getattr(arguments, self.argument)), arguments)

        about = text or shape.description_of(run)
        parser = shape.add_command(self.actions, f"{name}{self.suffix}", find_and_run, about)
        parser.add_argument(self.argument, metavar=self.metavar, help=self.help)
        return parser

    def add_all(self, *, without: Iterable[str] = ()) -> None:
        """Add a command for each verb and each action of the resource, but these."""
        fields, skipped = fields_of(self.resource, is_change=True), set(without)
        verbs = self.resource.verbs - skipped
        if "change" in verbs and fields:
            self.add_change()
        if "change" in verbs and "name" in fields and self.argument == "name":
            self.add_rename()
        for action in self.resource.actions:
            if action.name not in skipped:
                self.add_action(action)
        if "remove" in verbs:
            text = self.resource.help.get("remove", f"Remove {self.resource.one}.")
            self.add("remove", self._remove, text)

    def _remove(self, row: Any, _: argparse.Namespace) -> str:
        line = f"Removed: {row}."
        self.resource.remove(EVERYTHING, row)
        return line

    def add_change(
        self, run: Callable[[Any, argparse.Namespace], str] | None = None
    ) -> argparse.ArgumentParser:
        def change(row: Any, arguments: argparse.Namespace) -> str:
            values = values_of(arguments)
            row = self.resource.change(EVERYTHING, row, values)
            return f"{row} is changed." if values else f"{row} is unchanged."

        text = f"Change {self.resource.one}. Options that are not given keep their values."
        parser = self.add("change", run or change, text)
        fields = fields_of(self.resource, is_change=True)
        add_fields(parser, fields, self.options, fields)
        return parser

    def add_action(
        self, action: RowAction, run: Callable[[Any, argparse.Namespace], int | str] | None = None
    ) -> argparse.ArgumentParser:
        parser = self.add(
            action.name.replace("_", "-"), run or partial(self.act, action), action.help
        )
        fields = action.serializer().fields
        add_fields(parser, fields, _PARAMETERS, fields)
        return parser

    def act(self, action: RowAction, row: Any, arguments: argparse.Namespace) -> int | str:
        """Run an action. A new secret is returned alone, for scripts."""
        result = self.resource.act(EVERYTHING, action, row, **parameters_of(action, arguments))
        if isinstance(result, Issued):
            return announced(result)
        if isinstance(result, Mapping):
            for name, value in result.items():
                shape.print_line(f"{name}: {value}")
            return 0
        see = f" See: {self.see.format(result)}" if self.see else ""
        return f"{row if result is None else result} is {action.done}.{see}"

    def add_rename(self) -> None:
        def rename(row: Any, arguments: argparse.Namespace) -> str:
            row = self.resource.change(EVERYTHING, row, {"name": arguments.new_name})
            for warning in getattr(row, "warnings", ()):
                shape.print_line(warning)
            return f"The name is now {row}."

        parser = self.add("rename", rename, f"Rename {self.resource.one}.")
        parser.add_argument("new_name", metavar="NEW_NAME", help="the new name")


def parameters_of(action: RowAction, arguments: argparse.Namespace) -> Mapping[str, Any]:
    """Return the parameters of an action, with defaults. Raises ValidationError."""
    return _valid(action.serializer(data=values_of(arguments)))


def _valid(body: Any) -> Mapping[str, Any]:
    """Raises ValidationError."""
    if not body.is_valid():
        raise ValidationError({name: [*map(str, texts)] for name, texts in body.errors.items()})
    values: Mapping[str, Any] = body.validated_data
    return values


def announced(new: Issued) -> str:
    shape.print_note(f"The secret of {new.row} ({new.row.pk}). It is not shown again:")
    return new.secret


def add_resource(
    parser: argparse.ArgumentParser,
    resource: Resource[Any],
    column: str = "name",
    metavar: str = "NAME",
    text: str = "its name",
    *,
    find: Callable[[str], Any] | None = None,
    filters: Mapping[str, Option] | None = None,
    without: Iterable[str] = (),
    **more: Any,
) -> RowCommands:
    """Add the commands of a resource: its list, and those over a row. The row is found by its
    `column`, unless `find` finds it."""
    actions = shape.subcommands(parser)
    add_list(actions, resource, options=filters)
    name = parser.prog.partition(" ")[2]
    find = find or finder(resource.rows(EVERYTHING), column, f"{name} list")
    one = RowCommands(actions, resource, find, column, metavar, text, **more)
    one.add_all(without=without)
    return one


def add_declared(parser: argparse.ArgumentParser) -> None:
    """Add the commands that follow from the declaration of a resource alone: to the command
    `organization` those of the path `organizations`."""
    name = parser.prog.partition(" ")[2]
    resource = registered()[f"{name}s"]
    fields = fields_of(resource)
    by = ("name", "NAME", "its name") if "name" in fields else ("pk", "ID", f"from `{name} list`")
    kind = resource.one.partition(" ")[2]
    find = finder(resource.rows(EVERYTHING), by[0], f"{name} list", kind)
    one = add_resource(parser, resource, *by, find=find)

    def create(arguments: argparse.Namespace) -> str:
        body = resource.serializer(data=values_of(arguments), context={"access": EVERYTHING})
        new = resource.create(EVERYTHING, _valid(body))
        return announced(new) if isinstance(new, Issued) else f"{new} is created."

    if "create" in resource.verbs:
        text = resource.help.get("create", f"Create {resource.one}.")
        make = shape.add_command(one.actions, "create", create, text)
        if "name" in fields:
            make.add_argument("field_name", metavar="NAME", help="its name")
            del fields["name"]
        options = {name: Option(is_required=field.required) for name, field in fields.items()}
        add_fields(make, fields, options)
