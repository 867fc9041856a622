"""Fixed strings in text that arrives in parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operations import operations
from tests.tables import table
from vinery_serving.output.lexer import Literals


@table(
    "strings, text, found",
    [
        (["bcd", "c"], "abcd", (2, 3)),  # the first complete string
        (["c", "bc"], "abc", (1, 3)),  # the longest of strings that end together
        (["stop"], "go on", None),
    ],
)
def test_it_finds_the_first_string_and_refuses_an_empty_one(strings, text, found):
    assert Literals(strings).find(text) == found
    with pytest.raises(ValueError, match="empty"):
        Literals([*strings, ""])


@given(
    st.lists(st.text("ab<", min_size=1, max_size=5), min_size=1, max_size=6),
    st.text("ab<", max_size=12),
)
def test_the_longest_end_that_may_begin_a_string_is_held(strings, text):
    beginnings = [string[:size] for string in strings for size in range(1, len(string))]
    held = [len(begin) for begin in beginnings if text.endswith(begin)]

    assert Literals(strings).num_held(text) == max(held, default=0)


def test_many_long_names_cost_as_little_as_few():
    def work(num):
        found = Literals([f"{at:03}{'x' * 120}(" for at in range(num)])
        return lambda: [found.num_held(f"some text {'0' * size}") for size in range(50)]

    assert operations(work(500)) <= operations(work(5)) * 2
