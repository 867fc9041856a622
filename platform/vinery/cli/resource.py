"""Commands over `accounts.resources`: options from the fields of serializers, tables from columns.

The command line has the access of an administrator. Django must be loaded before this module is.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db.models import Model
from rest_framework import serializers

from accounts.resources.base import EVERYTHING, Conflict, Resource, RowAction
from vinery.cli.shape import Commands, Failure, add_json, add_num, print_line, print_rows

Find = Callable[[str], Any]
Run = Callable[[argparse.Namespace], int]

# Errors about these columns need no option's name.
_ABOUT_THE_ROW: Final = ("__all__", "is_active", "is_superuser", "role")
_FLAGS: Final[dict[str, str]] = {"username": "name"}
"""What the command line calls a column, for error messages."""


@dataclass(frozen=True, slots=True)
class Option:
    """How a field is written on the command line, where the default does not fit."""

    flag: str = ""
    parse: Callable[[str], Any] | None = None
    metavar: str | None = None
    help: str = ""
    clear: str = ""
    """The option that empties a list, such as `--any-model`."""
    is_required: bool = False


def add_command(
    actions: Commands, name: str, run: Run, text: str, **more: Any
) -> argparse.ArgumentParser:
    """Add a command. `text` is its help and, unless `description` is given, its description."""
    more.setdefault("description", text)
    parser = actions.add_parser(name, help=as_help(text), **more)
    parser.set_defaults(run=run)
    return parser


def add_group(commands: Commands, name: str, text: str) -> Commands:
    """Add a command with commands under it."""
    group = commands.add_parser(name, help=text)
    return group.add_subparsers(title="commands", metavar="COMMAND", required=True)


def as_help(text: str) -> str:
    """Return the first sentence as argparse shows help: lower case, without a period."""
    first = text.partition(". ")[0].rstrip(".").replace("%", "%%")
    return first if first[:2].isupper() else first[:1].lower() + first[1:]


# -- Fields as options


def add_fields(
    parser: argparse.ArgumentParser,
    resource: Resource[Any],
    names: Iterable[str],
    options: Mapping[str, Option] | None = None,
) -> None:
    """Add an option for each of these fields. Options that are not given leave no attribute."""
    fields = resource.serializer(context={"access": EVERYTHING}).fields
    for name in names:
        field, option = fields[name], (options or {}).get(name, Option())
        flag = option.flag or f"--{name.replace('_', '-')}"
        _FLAGS[str(field.source)] = flag
        _add_field(parser, field, flag, option)


def _add_field(parser: argparse.ArgumentParser, field: Any, flag: str, option: Option) -> None:
    details: dict[str, Any] = {
        "dest": f"field_{field.source}",
        "default": argparse.SUPPRESS,
        "required": option.is_required,
        "help": option.help.replace("%", "%%") or as_help(str(field.help_text or field.label)),
    }
    match field:
        case serializers.BooleanField():
            details["action"] = argparse.BooleanOptionalAction
        case serializers.ListField() if option.parse is None:
            details |= {"action": "append", **_choices(field.child)}
        case _:
            details |= {"type": option.parse or _type_of(field), **_choices(field)}
    if "choices" not in details and not isinstance(field, serializers.BooleanField):
        details["metavar"] = option.metavar or flag[2:].upper().replace("-", "_")
    target: Any = parser.add_mutually_exclusive_group() if option.clear else parser
    target.add_argument(flag, **details)
    if option.clear:
        text = f"instead of {flag}: none, which allows all" if "any" in option.clear else "none"
        target.add_argument(
            option.clear,
            dest=details["dest"],
            action="store_const",
            const=[],
            default=argparse.SUPPRESS,
            help=text,
        )


def _choices(field: Any) -> dict[str, Any]:
    is_choice = isinstance(field, serializers.ChoiceField)
    return {"choices": list(field.choices)} if is_choice else {}


def _type_of(field: Any) -> Callable[[str], Any]:
    if isinstance(field, serializers.IntegerField):
        return int
    return float if isinstance(field, serializers.FloatField) else str


def values_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the values of the options that were given, by column."""
    prefix = "field_"
    return {
        name.removeprefix(prefix): value
        for name, value in vars(arguments).items()
        if name.startswith(prefix)
    }


def writable_fields(resource: Resource[Any], *, without: Iterable[str] = ()) -> list[str]:
    """Return the names of the fields that clients may write, except references and `without`."""
    fields = resource.serializer(context={"access": EVERYTHING}).fields
    return [
        name
        for name in resource.writable()
        if not isinstance(fields[name], serializers.RelatedField) and name not in without
    ]


# -- Commands


def add_list(
    actions: Commands,
    resource: Resource[Any],
    text: str,
    filters: Mapping[str, tuple[str, Find | None]] | None = None,
    *,
    name: str = "list",
    has_num: bool = False,
    extra: Callable[[Sequence[Any]], Sequence[Mapping[str, Any]]] | None = None,
) -> None:
    """Add a command that lists a resource. `filters` maps an option to the filter of the resource
    and to what turns the text into its value; `extra` returns further columns of the rows."""

    def run(arguments: argparse.Namespace) -> int:
        rows = resource.rows(EVERYTHING)
        query = resource.filters(context={"access": EVERYTHING})
        for flag, (filter_name, find) in (filters or {}).items():
            word = getattr(arguments, flag[2:])
            if word:
                rows = query.narrow(rows, filter_name, find(word) if find else word)
        found = list(rows[: arguments.num] if has_num else rows)
        show_table(resource, found, arguments, extra)
        return 0

    parser = add_command(actions, name, run, text)
    for flag, (filter_name, find) in (filters or {}).items():
        field = resource.filters().fields[filter_name]
        words = [str(each).replace(" ", "-") for each in getattr(field, "choices", ())]
        metavar = "TEXT" if find is None else "NAME"
        details: dict[str, Any] = {"choices": words} if words else {"metavar": metavar}
        is_reference = isinstance(field, serializers.IntegerField)
        what = f"only of this {flag[2:]}" if is_reference else as_help(str(field.help_text))
        parser.add_argument(flag, help=what, **details)
    if has_num:
        add_num(parser)
    add_json(parser)


def show_table(
    resource: Resource[Any],
    rows: Sequence[Any],
    arguments: argparse.Namespace,
    extra: Callable[[Sequence[Any]], Sequence[Mapping[str, Any]]] | None = None,
) -> None:
    """Print rows as a table of the resource's columns, or as JSON: the body of the API with these
    columns."""
    shown = resource.load(rows)
    extras = extra(shown) if extra else [{}] * len(shown)
    serializer = resource.serializer(context={"access": EVERYTHING})
    dictionaries = [
        {
            **serializer.to_representation(row),
            **more,
            **{
                name: _value(row, path, serializer)
                for name, path in resource.columns.items()
                if name not in more
            },
        }
        for row, more in zip(shown, extras, strict=True)
    ]
    print_rows(dictionaries, tuple(resource.columns), as_json=arguments.json)


def _value(row: Any, path: Any, serializer: Any) -> Any:
    if callable(path):
        return path(row)
    field = serializer.fields.get(path)
    if isinstance(field, serializers.SerializerMethodField):
        return field.to_representation(row)
    if field is not None:
        return field.get_attribute(row)
    value = row
    for name in path.split("."):
        value = getattr(value, name)
    return value


def add_actions(
    actions: Commands,
    resource: Resource[Any],
    find: Find,
    names: Iterable[str],
    *,
    argument: str = "name",
    metavar: str = "NAME",
    help: str = "its name",
    done: Callable[[Any, RowAction], str] | None = None,
) -> None:
    """Add a command for each of these actions of a resource. `done` returns what is printed."""
    for name in names:
        action = resource.action(name)
        run = _act(resource, action, find, argument, done)
        parser = add_command(actions, name, run, action.help)
        parser.add_argument(argument, metavar=metavar, help=help)


def _act(
    resource: Resource[Any],
    action: RowAction,
    find: Find,
    argument: str,
    done: Callable[[Any, RowAction], str] | None,
) -> Run:
    def run(arguments: argparse.Namespace) -> int:
        with failures():
            row = resource.act(EVERYTHING, action, find(getattr(arguments, argument)))
        print_line(done(row, action) if done else f"{row} is {action.done}.")
        return 0

    return run


def add_rename(actions: Commands, resource: Resource[Any], find: Find) -> None:
    """Add `rename`."""

    def run(arguments: argparse.Namespace) -> int:
        with failures():
            row = resource.change(EVERYTHING, find(arguments.name), {"name": arguments.new_name})
        print_line(f"The name is now {row}.")
        return 0

    parser = add_command(actions, "rename", run, f"Rename {resource.one}.")
    parser.add_argument("name", metavar="NAME", help="the current name")
    parser.add_argument("new_name", metavar="NEW_NAME", help="the new name")


def add_remove(
    actions: Commands,
    resource: Resource[Any],
    find: Find,
    text: str,
    *,
    name: str = "remove",
    argument: tuple[str, str, str] = ("name", "NAME", "its name"),
    done: Callable[[Any], str] = lambda row: f"Removed: {row}.",
) -> None:
    """Add a command that removes one row. `argument` is its name, metavar and help."""

    def run(arguments: argparse.Namespace) -> int:
        row = find(getattr(arguments, argument[0]))
        text = done(row)
        with failures():
            resource.remove(EVERYTHING, row)
        print_line(text)
        return 0

    parser = add_command(actions, name, run, text)
    parser.add_argument(argument[0], metavar=argument[1], help=argument[2])


def create(resource: Resource[Any], values: Mapping[str, Any]) -> Any:
    """Store a new row. Raises `Failure`."""
    with failures():
        return resource.create(EVERYTHING, values)


def change(resource: Resource[Any], row: Model, values: Mapping[str, Any]) -> Any:
    """Give a row other values. Raises `Failure`."""
    with failures():
        return resource.change(EVERYTHING, row, values)


@contextmanager
def failures() -> Iterator[None]:
    """Raise errors of rules as `Failure`."""
    try:
        yield
    except ValidationError as error:
        raise Failure(_message(error)) from error
    except (Conflict, ValueError) as error:
        raise Failure(str(error)) from error


def _message(error: ValidationError) -> str:
    """Return all messages, each with the name of its option unless the message has it."""
    if not hasattr(error, "error_dict"):
        return " ".join(error.messages)
    return " ".join(
        message if not flag or flag.strip("-") in message.lower() else f"{flag}: {message}"
        for flag, messages in (
            ("" if name in _ABOUT_THE_ROW else _FLAGS.get(name, name), messages)
            for name, messages in error.message_dict.items()
        )
        for message in messages
    )
