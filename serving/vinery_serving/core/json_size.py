"""The size of parsed JSON values."""

from dataclasses import dataclass
from typing import Any, Final

# A larger number is no double, which is what most clients read.
MAX_NUMBER_DIGITS: Final = 308
_END: Final = 10**MAX_NUMBER_DIGITS


class NumberTooLarge(ValueError):
    """An integer has more than `MAX_NUMBER_DIGITS` digits."""


@dataclass(frozen=True, slots=True)
class JsonSize:
    """How much is in a JSON value, itself included."""

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
