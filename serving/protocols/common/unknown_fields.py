"""The fields of a body that its model does not have.

The objects of options, such as `stream_options`, are searched too. Messages, items and tools are
not: OpenAI's clients keep data of their own in them. Those of Anthropic's protocol are searched in
`serving/protocols/messages/members.py`.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from pydantic import BaseModel

from vinery_serving.core.unused import NOTHING_UNUSED, Unused

# Unknown names that are kept, and of each so many characters.
_MAX_NAMES: Final = 32
_MAX_NAME_CHARS: Final = 128


def unused_of(unknown: list[str], harmless: list[str] | None = None) -> Unused:
    """Return the report on the names of unknown and harmless fields."""
    if not (unknown or harmless):
        return NOTHING_UNUSED
    kept = tuple(name[:_MAX_NAME_CHARS] for name in unknown[:_MAX_NAMES])
    return Unused(kept, len(unknown), tuple(harmless or ()))


def unknown_fields(model: type[BaseModel], members: Mapping[str, Any]) -> list[str]:
    """Return the paths of all fields that `model` does not have, also in objects of options."""
    known = known_fields(model)
    own = [name for name, value in members.items() if name not in known and value is not None]
    return own + list(unknown_members(model, members))


def unknown_members(model: type[BaseModel], members: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paths of unknown members of the objects of options in `members`."""
    objects = _objects(model)
    for name in objects.keys() & members.keys():
        value = members[name]
        if isinstance(value, dict):
            for path in unknown_fields(objects[name], value):
                yield f"{name}.{path}"


@cache
def known_fields(model: type[BaseModel]) -> frozenset[str]:
    """The names of the fields, as clients send them."""
    return frozenset(field.alias or name for name, field in model.model_fields.items())


@cache
def _objects(model: type[BaseModel]) -> Mapping[str, type[BaseModel]]:
    """The models of the fields that are objects of options."""
    return {
        field.alias or name: inner
        for name, field in model.model_fields.items()
        if (inner := _options_of(field.annotation)) is not None
    }


def _options_of(annotation: Any) -> type[BaseModel] | None:
    """The model in `Model` or `Model | None`. None for lists and unions, and for formats, which
    may be tags with members of their own."""
    types = getattr(annotation, "__args__", (annotation,))
    models = [each for each in types if isinstance(each, type) and issubclass(each, BaseModel)]
    is_object = len(models) == 1 and getattr(annotation, "__origin__", None) is None
    return models[0] if is_object and "tag" not in models[0].model_fields else None
