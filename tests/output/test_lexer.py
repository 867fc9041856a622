"""Fixed strings in text that arrives in parts."""

import pytest

from serving.output.lexer import Literals


def test_it_finds_the_string_that_is_complete_first():
    assert Literals(["bcd", "c"]).find("abcd") == (2, 3)


def test_it_takes_the_longest_of_those_that_end_together():
    assert Literals(["c", "bc"]).find("abc") == (1, 3)


def test_it_finds_nothing_where_nothing_is():
    assert Literals(["stop"]).find("go on") is None


def test_it_holds_the_longest_end_that_may_begin_a_string():
    assert Literals(["aab", "ba"]).num_held("xbaa") == 2


def test_it_holds_nothing_for_strings_of_one_character():
    assert Literals(["x", "y"]).num_held("abc") == 0


def test_it_refuses_an_empty_string():
    with pytest.raises(ValueError, match="empty"):
        Literals(["stop", ""])
