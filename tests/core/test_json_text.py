"""JSON text with too many values is refused before parsing. Text in strings does not count."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operations import operations
from vinery_serving.core import field_limits
from vinery_serving.core.field_limits import JSON_CONTAINERS, JSON_MEMBERS, JSON_VALUES
from vinery_serving.core.json_text import exceeded_limit

STRINGS = st.text('{}[],:"\\ a\u00e9', max_size=12)
JSON = st.recursive(
    st.none() | st.integers() | STRINGS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(STRINGS, inner, max_size=5),
    max_leaves=30,
)


@pytest.fixture(autouse=True)
def defaults() -> Iterator[None]:
    yield
    field_limits.configure({})


def counted(value: Any) -> tuple[int, int, int]:
    """The objects and arrays, the members, and the values."""
    if isinstance(value, dict):
        inner = [counted(each) for each in value.values()]
        own = (1, len(value), 1)
    elif isinstance(value, list):
        inner = [counted(each) for each in value]
        own = (1, 0, 1)
    else:
        return (0, 0, 1)
    sums = [sum(each) for each in zip(own, *inner, strict=True)]
    return sums[0], sums[1], sums[2]


@given(JSON, st.booleans())
def test_as_much_as_the_limits_passes_and_no_more(value: Any, is_ascii: bool) -> None:
    text = json.dumps([value, {"a": 1}], ensure_ascii=is_ascii).encode()
    containers, members, _ = counted([value, {"a": 1}])
    # Each value but the first follows a bracket or a comma; empty brackets are followed by none.
    limits = {"json_containers": containers, "json_members": members}

    field_limits.configure(limits)
    assert exceeded_limit(text) is None
    field_limits.configure({**limits, "json_containers": containers - 1})
    assert exceeded_limit(text) is JSON_CONTAINERS
    field_limits.configure({**limits, "json_members": members - 1})
    assert exceeded_limit(text) is JSON_MEMBERS


@given(JSON)
def test_there_are_never_more_values_than_are_counted(value: Any) -> None:
    num_values = counted([value, 1])[2]
    field_limits.configure({"json_values": num_values - 1})

    assert exceeded_limit(json.dumps([value, 1]).encode()) is JSON_VALUES


@given(st.binary(max_size=60))
def test_any_bytes_can_be_counted(text: bytes) -> None:
    field_limits.configure({"json_containers": 1, "json_members": 1, "json_values": 1})

    exceeded_limit(text)


def test_counting_stops_at_the_limit() -> None:
    short, long = b"[" + b"[]," * 150_000, b"[" + b"[]," * 1_500_000

    assert operations(lambda: exceeded_limit(long)) <= operations(lambda: exceeded_limit(short)) + 9
