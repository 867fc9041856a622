"""A worker that was taken over cannot run code in the web process."""

import contextlib
import os
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.tables import table
from tests.workers.jobs_for_tests import RESULT_TYPES, Colour, Grape
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.workers.wire import BrokenAnswer, Codec, decode_refusal, encode_refusal

CODEC = Codec(RESULT_TYPES)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.binary()
    | st.builds(Grape, st.text(), st.just(Colour.RED), st.lists(st.integers(0, 2**40)).map(tuple)),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
)


class Runs:
    def __reduce__(self) -> Any:
        return os.system, ("true",)


@settings(max_examples=examples(25))
@given(VALUES)
def test_what_is_written_is_read(value: object) -> None:
    assert CODEC.loads(CODEC.dumps(value)) == value


_OTHER = CODEC.dumps(InvalidRequest("x"))


@table("data", [_OTHER, pickle.dumps(Runs()), pickle.dumps(Colour.RED), b"", b"\x80"])
def test_an_answer_names_no_code(data: bytes) -> None:
    with pytest.raises(BrokenAnswer):
        CODEC.loads(data)


@given(st.binary())
def test_any_bytes_are_an_answer_or_broken(data: bytes) -> None:
    with contextlib.suppress(BrokenAnswer):
        CODEC.loads(data)


def test_a_refusal_keeps_its_parts() -> None:
    error = decode_refusal(encode_refusal(InvalidRequest("No.", param="n", code="bad")))

    assert type(error) is InvalidRequest
    assert (error.message, error.param, error.code) == ("No.", "n", "bad")


@table("parts", [(), 5, ("Nothing", "a", None, None, "x"), None])
def test_a_broken_refusal_is_noticed(parts: object) -> None:
    with pytest.raises(BrokenAnswer):
        decode_refusal(pickle.dumps(parts))
