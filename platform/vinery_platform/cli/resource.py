"""Commands over `vinery_accounts/resources`: options from the fields of serializers, tables
from columns.

The command line has the access of an administrator. Django must be loaded before this module is.
"""

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from rest_framework import serializers

from vinery_accounts.resources.base import EVERYTHING, Conflict, Resource, RowAction
from vinery_accounts.services import audit
from vinery_platform.cli.period import period_of
from vinery_platform.cli.shape import Commands, Failure, add_json, add_num, print_line, print_rows

Run = Callable[[argparse.Namespace], int | str]
"""What a command does. Returns its exit status, or the line that it prints."""


def add_command(
    actions: Commands, name: str, run: Run, text: str, **more: Any
) -> argparse.ArgumentParser:
    """Add a command. `text` is its help and, unless `description` is given, its description."""
    more.setdefault("description", text)
    parser = actions.add_parser(name, help=as_help(text), **more)
    set_run(parser, run)
    return parser


def set_run(parser: argparse.ArgumentParser, run: Run) -> None:
    """Let a command run this, and raise errors of rules as `Failure`."""
    parser.set_defaults(run=partial(_run, run), flags={})


def _run(run: Run, arguments: argparse.Namespace) -> int:
    try:
        result = run(arguments)
    except ValidationError as error:
        raise Failure(_message(error, arguments.flags)) from error
    except (Conflict, ValueError) as error:
        raise Failure(str(error)) from error
    if isinstance(result, int):
        return result
    print_line(result)
    return 0


def _message(error: ValidationError, flags: Mapping[str, str]) -> str:
    """Return all messages, each with the name of its option unless the message has it."""
    if not hasattr(error, "error_dict"):
        return " ".join(error.messages)
    about_the_row = dict.fromkeys(("__all__", "is_active", "is_superuser", "role"), "")
    names = {"username": "name", **about_the_row, **flags}
    return " ".join(
        message if not flag or flag.strip("-") in message.lower() else f"{flag}: {message}"
        for column, messages in error.message_dict.items()
        for flag in [names.get(column, column)]
        for message in messages
    )


def as_help(text: str) -> str:
    """Return the first sentence as argparse shows help: lower case, without a period."""
    first = text.partition(". ")[0].rstrip(".").replace("%", "%%")
    return first if first[:2].isupper() else first[:1].lower() + first[1:]


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
    """Whether the option of a filter may be given several times."""
    find: Callable[[Any], Any] | None = None
    """Returns the value of a filter for the word, or for all words of a list."""


def add_fields(
    parser: argparse.ArgumentParser,
    resource: Resource[Any],
    options: Mapping[str, Option],
    names: Iterable[str] | None = None,
) -> None:
    """Add an option for each of these fields, by default for those of `options`. Options that are
    not given leave no attribute."""
    fields = resource.serializer(context={"access": EVERYTHING}).fields
    flags = {}
    for name in options if names is None else names:
        source = str(fields[name].source)
        option = options.get(name, Option())
        flags[source] = _add_option(parser, name, fields[name], option, f"field_{source}")
    parser.set_defaults(flags=flags)


def add_filters(
    parser: argparse.ArgumentParser, resource: Resource[Any], filters: Mapping[str, Option]
) -> None:
    fields = resource.filters().fields
    for name, option in filters.items():
        _add_option(parser, name, fields[name], option, f"filter_{name}")


def _add_option(
    parser: argparse.ArgumentParser, name: str, field: Any, option: Option, dest: str
) -> str:
    """Add the option of a field, and return its flag."""
    flag = option.flag or f"--{name.replace('_', '-')}"
    text = f"only of this {flag[2:]}" if option.find else str(field.help_text or field.label)
    target: dict[str, Any] = {"dest": dest, "default": argparse.SUPPRESS}
    details = target | {
        "required": option.is_required,
        "help": option.help.replace("%", "%%") or as_help(text),
    }
    values = field.child if isinstance(field, serializers.ListField) else field
    if option.is_list or (values is not field and option.parse is None):
        details["action"] = "append"
    if isinstance(values, serializers.BooleanField):
        details["action"] = argparse.BooleanOptionalAction
    elif isinstance(values, serializers.ChoiceField):
        details["choices"] = [str(each).replace(" ", "-") for each in values.choices]
    else:
        details["metavar"] = option.metavar or flag[2:].upper().replace("-", "_")
        details["type"] = option.parse or (str if option.find else _type_of(values))
    group: Any = parser.add_mutually_exclusive_group() if option.clear else parser
    group.add_argument(flag, **details)
    if option.clear:
        text = f"instead of {flag}: none, which allows all" if "any" in option.clear else "none"
        group.add_argument(option.clear, action="store_const", const=[], help=text, **target)
    return flag


def _type_of(field: Any) -> Callable[[str], Any]:
    if isinstance(field, serializers.IntegerField):
        return int
    return float if isinstance(field, serializers.FloatField) else str


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


def filtered(
    resource: Resource[Any], filters: Mapping[str, Option], arguments: argparse.Namespace
) -> QuerySet[Any]:
    """Return the rows that match the options, and the period if there is one. Raises `Failure` for
    an unknown name."""
    rows = resource.rows(EVERYTHING)
    if "since" in arguments:
        since, until = period_of(arguments)
        rows = rows.filter(created_at__gte=since, created_at__lt=until)
    query = resource.filters(context={"access": EVERYTHING})
    for name, option in filters.items():
        value = getattr(arguments, f"filter_{name}", "")
        if value != "":
            lookup = f"{query.fields[name].source}{'__in' if option.is_list else ''}"
            rows = query.narrow(rows, lookup, option.find(value) if option.find else value)
    return rows


def add_list(
    actions: Commands,
    resource: Resource[Any],
    text: str,
    filters: Mapping[str, Option] | None = None,
    *,
    name: str = "list",
    has_num: bool = False,
    rows: Callable[[argparse.Namespace], QuerySet[Any]] | None = None,
    annotations: Mapping[str, Any] | None = None,
    extra: Callable[[Sequence[Any]], Sequence[Mapping[str, Any]]] = lambda rows: [{}] * len(rows),
    **more: Any,
) -> argparse.ArgumentParser:
    """Add a command that lists a resource, by default the rows that match `filters`. It prints the
    resource's columns and those of `extra`, or as JSON the body of the API with these columns."""
    known, columns = filters or {}, resource.columns

    def run(arguments: argparse.Namespace) -> int:
        found = rows(arguments) if rows else filtered(resource, known, arguments)
        found = found.annotate(**annotations or {})
        shown = resource.load(list(found[: arguments.num] if has_num else found))
        body = resource.serializer(context={"access": EVERYTHING}).to_representation
        dictionaries = [
            {
                **body(row),
                **extras,
                **{name: column(row) for name, column in columns.items() if name not in extras},
            }
            for row, extras in zip(shown, extra(shown), strict=True)
        ]
        print_rows(dictionaries, tuple(columns), as_json=arguments.json)
        return 0

    parser = add_command(actions, name, run, text, **more)
    add_filters(parser, resource, known)
    if has_num:
        add_num(parser)
    add_json(parser)
    return parser


# -- Commands over one row


@dataclass(frozen=True, slots=True)
class RowCommands:
    """Adds commands over one row of a resource, which their argument names."""

    actions: Commands
    resource: Resource[Any]
    find: Callable[[Any], Any]
    argument: str = "name"
    metavar: str = "NAME"
    help: str = "its name"
    type: Callable[[str], Any] = str

    def add(
        self, name: str, run: Callable[[Any, argparse.Namespace], int | str], text: str
    ) -> argparse.ArgumentParser:
        """Add a command. `run` takes the row and the arguments."""

        def find_and_run(arguments: argparse.Namespace) -> int | str:
            return run(self.find(getattr(arguments, self.argument)), arguments)

        parser = add_command(self.actions, name, find_and_run, text)
        parser.add_argument(self.argument, metavar=self.metavar, type=self.type, help=self.help)
        return parser

    def add_change(
        self,
        text: str,
        options: Mapping[str, Option],
        names: Iterable[str] | None = None,
        *,
        name: str = "change",
        run: Callable[[Any, argparse.Namespace], str] | None = None,
    ) -> argparse.ArgumentParser:
        def change(row: Any, arguments: argparse.Namespace) -> str:
            values = values_of(arguments)
            row = self.resource.change(EVERYTHING, row, values)
            return f"{row} is changed." if values else f"{row} is unchanged."

        parser = self.add(name, run or change, text)
        add_fields(parser, self.resource, options, names)
        return parser

    def add_actions(
        self,
        *names: str,
        done: Callable[[Any, RowAction], str] = lambda row, action: f"{row} is {action.done}.",
    ) -> None:
        """Add a command for each of these actions. `done` returns the line that is printed."""

        def act(action: RowAction, row: Any, _: argparse.Namespace) -> str:
            return done(self.resource.act(EVERYTHING, action, row), action)

        for name in names:
            action = self.resource.action(name)
            self.add(name, partial(act, action), action.help)

    def add_rename(self) -> None:
        def rename(row: Any, arguments: argparse.Namespace) -> str:
            row = self.resource.change(EVERYTHING, row, {"name": arguments.new_name})
            return f"The name is now {row}."

        parser = self.add("rename", rename, f"Rename {self.resource.one}.")
        parser.add_argument("new_name", metavar="NEW_NAME", help="the new name")

    def add_remove(
        self,
        text: str,
        *,
        name: str = "remove",
        done: Callable[[Any], str] = lambda row: f"Removed: {row}.",
    ) -> None:
        """Add a command that removes the row. `done` returns the line that is printed."""

        def remove(row: Any, _: argparse.Namespace) -> str:
            line = done(row)
            self.resource.remove(EVERYTHING, row)
            return line

        self.add(name, remove, text)
