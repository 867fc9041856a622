"""Numbers in the form of other clients, where their meaning is plain.

`8.0` is an integer in JSON, and clients without integers send it. Under `/v3` a number may also
be a text, as OpenVINO Model Server's users send it. Only the fields of the body itself are read
so: inside of schemas, messages and arguments a value stays as it was sent.
"""

import re
from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import BaseModel

from vinery_serving.core.dialects import V3, Dialect

# As JSON writes numbers, with at most as many digits as any limit has.
_NUMBER: Final = re.compile(r"-?[0-9]{1,20}(?:\.[0-9]{1,20})?\Z")


def with_numbers(
    model: type[BaseModel], members: dict[str, Any], dialect: Dialect
) -> dict[str, Any]:
    """Return the members of a body, with the numbers that the fields of `model` expect."""
    kinds, reads_text = _kinds(model), dialect.name == V3.name
    others = {
        name: _number(value, kinds[name], reads_text=reads_text)
        for name, value in members.items()
        if name in kinds and type(value) is not kinds[name]
    }
    return {**members, **others} if others else members


def _number(value: object, kind: type, *, reads_text: bool) -> object:
    number = value
    if reads_text and isinstance(number, str) and _NUMBER.match(number):
        number = float(number) if "." in number else int(number)
    if isinstance(number, float) and kind is int:
        number = int(number) if number.is_integer() else value
    return number


@cache
def _kinds(model: type[BaseModel]) -> Mapping[str, type]:
    """The fields that hold one number, by the name that clients send: `int` or `float`."""
    kinds: dict[str, type] = {}
    for name, field in model.model_fields.items():
        types = _types(field.annotation)
        kind = next((each for each in (float, int) if each in types), None)
        if kind is not None and str not in types:
            kinds[field.alias or name] = kind
    return kinds


def _types(annotation: Any) -> set[Any]:
    """The types of a union, without their annotations."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _types(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return set().union(*map(_types, get_args(annotation)))
    return {annotation}
