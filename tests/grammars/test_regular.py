"""Patterns, automata and number ranges agree with Python's own results."""

import re
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.tables import table
from vinery_serving.core.errors import InvalidGrammar
from vinery_serving.grammars.grammar.languages import (
    Language,
    Matcher,
    NotRegular,
    TooManyStates,
    complement,
    intersection,
    length_bounds,
)
from vinery_serving.grammars.grammar.patterns import (
    InvalidPattern,
    fullmatch_language,
    search_language,
)
from vinery_serving.grammars.grammar.rules import RuleSet, plain
from vinery_serving.grammars.json_schema.nodes import SchemaNode
from vinery_serving.grammars.json_schema.numbers import Bound, NumberRange, number_range
from vinery_serving.grammars.json_schema.strings import FORMATS, SHORT_FORMATS
from vinery_serving.grammars.json_schema.translator import json_grammar
from vinery_serving.grammars.texts import regex_tag

from .lark_texts import fits


def matches(language: Language, text: str) -> bool:
    return Matcher(language).matches(text)


atoms = st.sampled_from(["a", "b", "[ab]", "[^a]", ".", r"\d", r"\.", "c"])


def _combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    group = inner.map(lambda body: f"(?:{body})")
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(group, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}"])).map("".join),
    )


patterns = st.recursive(atoms, _combined, max_leaves=6)
texts = st.text(alphabet="abc.1\n", max_size=6)


@given(patterns, texts)
def test_a_pattern_matches_what_python_matches(pattern, text):
    assert matches(fullmatch_language(pattern), text) == bool(re.fullmatch(pattern, text))


@given(patterns, texts, st.booleans(), st.booleans())
def test_a_pattern_is_found_where_python_finds_it(pattern, text, starts, ends):
    whole = f"{'^' * starts}{pattern}{'$' * ends}"
    assume(not text.endswith("\n"))  # Python's dollar also matches before a final newline

    assert matches(search_language(whole), text) == bool(re.search(whole, text))


@given(patterns, patterns, texts)
def test_intersection_and_complement_match_python(one, other, text):
    language = intersection(fullmatch_language(one), complement(fullmatch_language(other)))

    expected = bool(re.fullmatch(one, text)) and not re.fullmatch(other, text)
    assert matches(language, text) == expected


@given(patterns, patterns, texts)
def test_rules_fit_the_texts_of_their_language(one, other, text):
    expression = search_language(one)
    automaton = intersection(expression, complement(fullmatch_language(other)))

    for language in (expression, automaton):
        rules = RuleSet(plain)
        assert fits(rules.of(language), rules.rules, text) == matches(language, text)


@table(
    "least, most",
    [(0, 5), (3, 121), (0, 128), (120, 120), (130, None), (45, 200), (399, 401), (7, 5000)],
)
def test_any_number_of_repetitions_can_be_written(least, most):
    rules = RuleSet(plain)
    expr = rules.repeated(rules.of(fullmatch_language("[a-z]|%[01]")), least, most)

    for count in (least, least + 1, least + 40, *range(most or 999, (most or 999) + 2)):
        is_allowed = least <= count and (most is None or count <= most)
        assert fits(expr, rules.rules, "%0" + "a" * (count - 1)) == is_allowed


@given(patterns, texts)
def test_lengths_are_never_narrower_than_the_language(pattern, text):
    least, most = length_bounds(fullmatch_language(pattern))

    if re.fullmatch(pattern, text):
        assert least <= len(text)
        assert most is None or len(text) <= most


bounds = st.decimals(-2000, 2000, places=3) | st.integers(-2000, 2000).map(Decimal)
numerals = st.decimals(-2500, 2500, places=2).map(str) | st.integers(-2500, 2500).map(str)


@given(bounds, bounds, st.booleans(), st.booleans(), numerals)
def test_numbers_are_those_between_the_bounds(low, high, opens, closes, numeral):
    value = Decimal(numeral)
    language = NumberRange(Bound(low, opens), Bound(high, closes)).numbers()

    is_above = value > low if opens else value >= low
    is_below = value < high if closes else value <= high
    is_written = not (value == 0 and numeral.startswith("-"))
    assert matches(language, numeral) == (is_above and is_below and is_written)


@given(bounds, st.integers(1, 60), st.integers(-2500, 2500))
def test_integers_are_the_multiples_in_the_range(low, factor, value):
    language = NumberRange(low=Bound(low), factors=(Decimal(factor),)).integers()

    assert matches(language, str(value)) == (value >= low and value % factor == 0)


LONG_NUMBERS: list[tuple[dict[str, Any], list[int | str], list[int | str]]] = [
    ({"minimum": 10**17}, [10**17, 2**63], [10**17 - 1]),
    ({"minimum": 0, "maximum": 2**64 - 1}, [0, 10**18, 2**64 - 1], [-1, 2**64]),
    ({"minimum": -(2**63), "maximum": 2**63 - 1}, [-(2**63), 2**63 - 1], [-(2**63) - 1, 2**63]),
    ({"exclusiveMaximum": -(10**16)}, [-(10**16) - 1], [-(10**16), 10**17]),
    (
        {"minimum": 10**25, "maximum": 2 * 10**25},
        [10**25, 2 * 10**25],
        [10**25 - 1, 2 * 10**25 + 1],
    ),
    ({"exclusiveMinimum": 10**25 - 1}, [10**25, 10**26 - 1], [10**25 - 1]),
    ({"multipleOf": 5, "minimum": 1}, [2**63 - 3], [2**63 - 1]),
    ({"multipleOf": 900, "minimum": 10**11}, [10**11 + 800], [10**11, 10**11 + 900]),
    ({"type": "number", "minimum": 0, "maximum": 1e18}, [10**18 - 1, 7], [10**18 + 1]),
    (
        {"type": "number", "exclusiveMinimum": 0.1, "exclusiveMaximum": 0.1000001},
        ["0.10000005"],
        ["0.1", "0.1000001"],
    ),
]


@table("words, inside, outside", LONG_NUMBERS)
def test_bounds_have_as_many_digits_as_they_need(words, inside, outside):
    wanted = number_range([SchemaNode((), words)])
    language = wanted.numbers() if words.get("type") == "number" else wanted.integers()

    assert [each for each in inside if not matches(language, str(each))] == []
    assert [each for each in outside if matches(language, str(each))] == []
    assert json_grammar({"type": "integer", **words})


@given(st.sampled_from(["0.5", "0.25", "0.1", "2.5"]), st.decimals(-99, 99, places=3))
def test_multiples_need_not_be_whole(factor, value):
    language = NumberRange(factors=(Decimal(factor),)).numbers()
    numeral = f"{value:f}".rstrip("0").rstrip(".")
    assume(numeral not in ("-0", ""))

    assert matches(language, numeral) == (Decimal(numeral) % Decimal(factor) == 0)


@table(
    "error, patterns",
    [
        (InvalidPattern, ["(", ")", "a)", "[a", "a{3,2}", "*a", "a**", "\\"]),
        (InvalidPattern, ["[z-a]", "\\x1", r"\y"]),
        (NotRegular, [r"(?=a)", r"a(?!b)", r"(?<=a)b", r"(a)\1", r"\bword", r"(?i)a", r"\p{L}"]),
        (NotRegular, ["a^b", "(a$)", "a{99999}", "a" * 3000, "(" * 60 + ")" * 60]),
    ],
)
def test_a_pattern_that_is_invalid_or_not_regular_is_refused(error, patterns):
    for pattern in patterns:
        with pytest.raises(error):
            search_language(pattern)


@table(
    "pattern, text",
    [
        (r"^\u00e9\x41\u{1F600}$", "éA😀"),
        (r"^\s\S\w\W\d\D$", " x_-7x"),
        (r"^[\]\-^\\]+$", "]-^\\"),
        (r"^(?<year>\d{4})-(?P<x>a)$", "2024-a"),
        ("^a+?b*?$", "aab"),
        ("^{}$", "{}"),
    ],
)
def test_escapes_and_classes_are_understood(pattern, text):
    assert matches(search_language(pattern), text)
    assert not matches(search_language(pattern), text + "~")


def test_an_expensive_match_and_a_large_automaton_are_refused():
    with pytest.raises(TooManyStates):
        matches(fullmatch_language("(a?b?){900}" * 3), "ab" * 900)
    with pytest.raises(InvalidGrammar, match="too large"):
        regex_tag("(?:(a|b)*)*a(a|b){40}", param="guided_regex")


def _check_uri(text: str) -> None:
    assert urlsplit(text).scheme
    _ = urlsplit(text).port


def _check_host(text: str) -> None:
    # Short forms are counted besides, to 63 characters in all.
    is_short = re.fullmatch(SHORT_FORMATS["hostname"], text)
    assert is_short or all(0 < len(label) <= 63 for label in text.split("."))


CHECKS: dict[str, Callable[[str], Any]] = {
    "date": date.fromisoformat,
    "date-time": lambda text: datetime.fromisoformat(text.replace("Z", "+00:00")),
    "uri": _check_uri,
    "iri": _check_uri,
    "ipv4": ip_address,
    "ipv6": ip_address,
    "uuid": UUID,
    "hostname": _check_host,
}


@table("name", [*FORMATS])
@settings(max_examples=examples(10))
@given(data=st.data())
def test_texts_of_a_format_pass_the_checks_of_python(name, data):
    for formats in (FORMATS, SHORT_FORMATS):
        if name in formats:
            ascii_ = st.characters(max_codepoint=127)
            text = data.draw(st.from_regex(formats[name], fullmatch=True, alphabet=ascii_))
            assert matches(fullmatch_language(formats[name]), text)
            CHECKS.get(name, str)(text)
