"""Reads engine options that administrators write, and documents them for administrators."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from functools import cache
from types import NoneType
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from vinery_serving.core.tasks import Task, explanation
from vinery_serving.engine.option_groups import OptionGroup
from vinery_serving.engine.options import EngineOptions, tasks_of_option

_MAX_SHOWN: Final = 40  # characters of a wrong value in a message


def parse_options(values: dict[str, Any], task: Task | None = None) -> EngineOptions:
    """Return the options of a served model. With a `task`, options that have no effect on it are
    wrong. Raises ValueError with a sentence for the user."""
    _check_members(EngineOptions, values)
    for name, value in values.items():
        tasks = tasks_of_option(name)
        if task is not None and task not in tasks and value != getattr(_DEFAULTS, name):
            suits = ", ".join(each for each in Task if each in tasks)
            raise ValueError(
                f"{name} has no effect on this model, which {explanation(task)}. It is an option "
                f"of models for {suits}: leave it out."
            )
    try:
        return msgspec.convert(values, EngineOptions)
    except msgspec.ValidationError as error:
        # The sentence of a rule, after the group whose rule it is.
        sentence, _, path = str(error).partition(" - at `$.")
        group = f"{path.rstrip('`')}: " if path else ""
        raise ValueError(f"{group}{sentence}.") from error


_DEFAULTS: Final = EngineOptions()
_kinds = cache(get_type_hints)  # takes a ms, and is asked for with each table of models
# The types of options in the words of administrators.
_TYPE_NAMES: Final = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    list[str]: "a list of texts",
    dict[str, Any]: "an object",
}


def _check_members(struct: type[msgspec.Struct], values: Mapping[str, Any], at: str = "") -> None:
    """Raises ValueError for an unknown or missing name, and for a value of a wrong type. `at` is
    the prefix of a group's names."""
    known = struct.__struct_fields__
    for name in sorted(values.keys() - set(known)):
        near = difflib.get_close_matches(name, known, n=1)
        advice = f"Did you mean {at}{near[0]}?" if near else f"There are {', '.join(known)}."
        raise ValueError(f"There is no option {at}{name}. {advice}")
    kinds = _kinds(struct)
    for name in (each.name for each in msgspec.structs.fields(struct) if each.required):
        if name not in values:
            raise ValueError(f"{at}{name} is missing: {at.rstrip('.')} needs it.")
    for name, value in values.items():
        group, is_list = group_type(kinds[name]), get_origin(kinds[name]) is list
        members = value if is_list and isinstance(value, list) else [value]
        are_objects = all(isinstance(each, Mapping) for each in members)
        if group is None or not are_objects or is_list is not isinstance(value, list):
            _check_type(f"{at}{name}", value, kinds[name])
            continue
        for each in members:
            _check_members(group, each, f"{at}{name}.")


def group_type(kind: Any) -> type[OptionGroup] | None:
    """None: the option is a single value."""
    groups = [each for each in get_args(kind) if isinstance(each, type)]
    return next((each for each in groups if issubclass(each, OptionGroup)), None)


def _check_type(name: str, value: object, kind: Any) -> None:
    """Raises ValueError for a value that is not of the option's type."""
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        shown = json.dumps(value, ensure_ascii=False, default=str)
        shown = shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}…"
        raise ValueError(f"{name} must be {_type_name(kind)}, not {shown}.") from None


def _type_name(kind: Any) -> str:
    if get_origin(kind) is Literal:
        *others, last = [each or "empty" for each in get_args(kind)]
        return f"{', '.join(others)} or {last}"
    if get_origin(kind) is list and group_type(kind) is not None:
        return "a list of objects"
    if NoneType in get_args(kind):
        values = [_TYPE_NAMES[each] for each in get_args(kind) if each in _TYPE_NAMES]
        return f"{values[0] if values else 'an object'} or null"
    return _TYPE_NAMES[kind]


class OptionDocument(NamedTuple):
    name: str  # `group.member` for the member of a group
    default: str  # as JSON; empty: the group needs it
    meaning: str

    @property
    def default_text(self) -> str:
        return f"default: {self.default}" if self.default else "the group needs it"


def option_documents() -> list[OptionDocument]:
    """Return all options as declared, each group before its members, for command line and admin."""
    return list(_documents(EngineOptions))


def _documents(struct: type[msgspec.Struct], at: str = "") -> Iterator[OptionDocument]:
    hints, kinds = get_type_hints(struct, include_extras=True), get_type_hints(struct)
    for field in msgspec.structs.fields(struct):
        has_factory = field.default_factory is not msgspec.NODEFAULT
        value = field.default_factory() if has_factory else field.default
        default = "" if field.required else json.dumps(value)
        meaning = hints[field.name].__metadata__[0]
        yield OptionDocument(f"{at}{field.name}", default, meaning)
        if (group := group_type(kinds[field.name])) is not None:
            yield from _documents(group, f"{at}{field.name}.")
