"""The limits on JSON text as a whole: before it is parsed, and on the levels of what was parsed."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from vinery_serving.core.field_limits import JSON_CONTAINERS, JSON_MEMBERS, JSON_VALUES, FieldLimit

_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
# Some strings and what is between them: the next part of a text that ends outside of strings.
_PART: Final = re.compile(rb'(?:[^"]{1,4096}+|"[^"\\]*+(?:\\.[^"\\]*+)*+"?){1,4096}+', re.DOTALL)
_SLICE_BYTES: Final = 1 << 18
_LIMITS: Final = (JSON_CONTAINERS, JSON_MEMBERS, JSON_VALUES)


def exceeded_limit(text: bytes) -> FieldLimit | None:
    """Return the limit on objects, arrays, members and values that JSON text exceeds, before it
    is parsed. None: it exceeds none. Stops where the limit is exceeded."""
    # Each of what is counted takes a byte.
    if len(text) < min(JSON_CONTAINERS.value, JSON_MEMBERS.value, JSON_VALUES.value):
        return None
    # Counting takes a nanosecond for a byte. It counts the signs in strings, too, so that a text
    # with too many signs is counted again without its strings.
    slices = (text[at : at + _SLICE_BYTES] for at in range(0, len(text), _SLICE_BYTES))
    if _exceeded(slices) is None:
        return None
    return _exceeded(_without_strings(text))


def _exceeded(parts: Iterable[bytes]) -> FieldLimit | None:
    num_containers = num_members = 0
    num_values = 1
    for part in parts:
        num_opened = part.count(b"{") + part.count(b"[")
        num_containers += num_opened
        num_members += part.count(b":")
        num_values += num_opened + part.count(b",")
        numbers = num_containers, num_members, num_values
        for limit, number in zip(_LIMITS, numbers, strict=True):
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
