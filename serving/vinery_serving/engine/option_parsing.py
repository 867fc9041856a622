"""Reads engine options that administrators write, and documents them for administrators."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, get_args, get_type_hints

import msgspec

from vinery_serving.core.tasks import Task, explanation
from vinery_serving.engine.option_groups import OptionGroup
from vinery_serving.engine.options import EngineOptions, tasks_of_option


def parse_options(values: dict[str, Any], task: Task | None = None) -> EngineOptions:
    """Return the options of a served model. With a `task`, options that have no effect on it are
    wrong. Raises ValueError with a sentence for the user."""
    for name, value in values.items():
        if name not in EngineOptions.__struct_fields__:
            raise ValueError(_unknown(name))
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
        raise ValueError(_sentence(str(error))) from error


_DEFAULTS: Final = EngineOptions()
# msgspec's names of types in the words of administrators.
_TYPE_NAMES: Final = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a text",
    "array": "a list",
    "object": "an object",
}
_TYPE: Final = re.compile(rf"\b({'|'.join(_TYPE_NAMES)})\b")


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, EngineOptions.__struct_fields__, n=1)
    known = ", ".join(EngineOptions.__struct_fields__)
    advice = f"Did you mean {near[0]}?" if near else f"There are {known}."
    return f"There is no option {name}. {advice}"


def _sentence(error: str) -> str:
    """Return msgspec's error for administrators, with the path of an option or of a group."""
    text, _, path = error.partition(" - at `$")
    text = text.replace("Object missing required field", "it lacks the member")
    text = text.replace("Object contains unknown field", "it has no member")
    name = path.strip(".`")
    if text.startswith("Expected "):
        named = _TYPE.sub(lambda found: _TYPE_NAMES[found[0]], text.removeprefix("Expected "))
        return f"{name} must be {named.replace('`', '')}."
    if text.startswith("Invalid enum value "):
        kind: Any = EngineOptions
        for part in name.split("."):
            hint = get_type_hints(kind)[part]
            kind = group_type(hint) or hint
        return f"{name}: {text}. It must be one of {', '.join(filter(None, get_args(kind)))}."
    return f"{name}: {text}." if name else f"{text}."


def group_type(kind: Any) -> type[OptionGroup] | None:
    """None: the option is a single value."""
    groups = [each for each in get_args(kind) if isinstance(each, type)]
    return next((each for each in groups if issubclass(each, OptionGroup)), None)


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
        meaning = hints[field.name].__metadata__[-1]
        yield OptionDocument(f"{at}{field.name}", default, meaning)
        if (group := group_type(kinds[field.name])) is not None:
            yield from _documents(group, f"{at}{field.name}.")
