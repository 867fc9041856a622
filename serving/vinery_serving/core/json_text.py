"""The size of JSON: of a text before it is parsed, and of values."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from vinery_serving.core.field_limits import JSON_CONTAINERS, JSON_MEMBERS, JSON_VALUES, FieldLimit

_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
# Some strings and the text between them: the next part of a text, with its end outside of strings.
_PART: Final = re.compile(rb'(?:[^"]{1,4096}+|"[^"\\]*+(?:\\.[^"\\]*+)*+"?){1,4096}+', re.DOTALL)
_SLICE_BYTES: Final = 1 << 18
_LIMITS: Final = (JSON_CONTAINERS, JSON_MEMBERS, JSON_VALUES)


def exceeded_limit(text: bytes) -> FieldLimit | None:
    """Return the limit on objects, arrays, members and values that unparsed JSON text exceeds.
    None: no limit is exceeded. Stops at the first excess."""
    # Each counted thing takes a byte.
    if len(text) < min(JSON_CONTAINERS.value, JSON_MEMBERS.value, JSON_VALUES.value):
        return None
    # Counting takes a nanosecond for a byte. The first count includes signs in strings, so a text
    # with too many signs is counted again without its strings.
    slices = (text[at : at + _SLICE_BYTES] for at in range(0, len(text), _SLICE_BYTES))
    return None if _exceeded(slices) is None else _exceeded(_without_strings(text))


def _exceeded(parts: Iterable[bytes]) -> FieldLimit | None:
    num_containers = num_members = 0
    num_values = 1
    for part in parts:
        num_opened = part.count(b"{") + part.count(b"[")
        num_containers += num_opened
        num_members += part.count(b":")
        num_values += num_opened + part.count(b",")
        for limit, number in zip(_LIMITS, (num_containers, num_members, num_values), strict=True):
            if number > limit.value:
                return limit
    return None


def _without_strings(text: bytes) -> Iterator[bytes]:
    at = 0
    while part := _PART.match(text, at):
        at = part.end()
        yield _STRING.sub(b"", part.group())


def is_deeper_than(limit: int, value: dict[str, Any]) -> bool:
    """Return whether objects and arrays nest in more than `limit` levels."""
    level: list[Any] = [value]
    for _ in range(limit):
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return False
    return True


MAX_NUMBER_DIGITS: Final = 308  # A larger number is no double, which is what most clients read
_END: Final = 10**MAX_NUMBER_DIGITS


class NumberTooLarge(ValueError):
    """An integer has more than `MAX_NUMBER_DIGITS` digits."""


@dataclass(frozen=True, slots=True)
class JsonSize:
    num_values: int = 0
    num_chars: int = 0  # of all strings and all keys
    num_properties: int = 0  # members of all `properties`, if the value is a JSON schema
    num_enum_values: int = 0  # entries of all `enum`, if the value is a JSON schema


def size_of(value: Any) -> JsonSize:
    """Return the size of a parsed JSON value. Raises `NumberTooLarge`."""
    num_chars = num_properties = num_enum_values = 0
    nodes: list[Any] = [value]
    for node in nodes:  # which grows: a loop is faster here than recursion, and has no limit
        kind = type(node)
        if kind is str:
            num_chars += len(node)
        elif kind is dict:
            num_chars += sum(map(len, node))
            if "properties" in node:
                num_properties += _length(node["properties"], dict)
            if "enum" in node:
                num_enum_values += _length(node["enum"], list)
            nodes += node.values()
        elif kind is list:
            nodes += node
        elif kind is int and not -_END < node < _END:
            raise NumberTooLarge
    return JsonSize(len(nodes), num_chars, num_properties, num_enum_values)


def _length(value: Any, kind: Any) -> int:
    return len(value) if isinstance(value, kind) else 0
