"""A long answer costs in proportion to its length: parsers look at a character a bounded number of
times, however the model writes. The work is counted, because times differ from run to run.
"""

import re
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.fakes.engine import CharacterDecoder
from tests.operations import calls
from tests.tables import table
from vinery_serving.core.request import Tool
from vinery_serving.output import lexer
from vinery_serving.output.parsers import json_calls, pythonic, respelling, tagged, value_text
from vinery_serving.output.parsers.argument_types import argument_json
from vinery_serving.output.reader import ChoiceReader

from .builders import Parsing, ids_of, object_of
from .families import PING, WRITERS, written

TOKEN_CHARS = 4
SHORT, LONG = 800, 3_200
# A family for each way to write a value.
FAMILIES = ("hermes", "lfm2", "gemma4", "gptoss", "qwen3coder")
# Of the work for each character; work that is quadratic grows to four times as much.
MOST_GROWTH = 1.5
# The most characters that a pattern reads without a match: keys, escapes and the text after a quote
# are bounded.
MOST_IN_VAIN = 300

MODULES = (lexer, json_calls, pythonic, respelling, tagged, value_text)
TOOLS = [Tool("get_weather", None, object_of([], note={"type": "string"})), Tool("ping")]

# Texts of any length, each of which a parser might read again and again.
VALUES: dict[str, Callable[[int], str]] = {
    "words": lambda n: '"' + "some words " * (n // 11) + '"',
    "quotes": lambda n: '"' + 'a "b" c' * (n // 7) + '"',
    "nothing but quotes": lambda n: '"' * n,
    "commas after quotes": lambda n: '"' + '", ' * (n // 3),
    "brackets in a string": lambda n: '"' + "}])" * (n // 3) + '"',
    "backslashes": lambda n: '"' + "\\" * n + '"',
    "names of characters": lambda n: "'" + "\\N{" * (n // 3) + "'",
    "blanks in a string": lambda n: '"' + " " * n + '"',
    "tags in a string": lambda n: '"' + "<tool_call></function></tool_call>" * (n // 34) + '"',
    "no quotes": lambda n: "word " * (n // 5),
    "blanks": lambda n: " " * n + "1",
    "blanks after a key": lambda n: '{"a"' + " " * n + ": 1}",
    "a long key": lambda n: '{"' + "a" * n + '": 1}',
    "a key without quotes": lambda n: "{" + "a" * n + ": 1}",
    "members": lambda n: "{" + '"a": 1, ' * (n // 8) + "}",
    "members without commas": lambda n: "{" + "a: 1 " * (n // 5) + "}",
    "open brackets": lambda n: "[" * n,
    "strings in open brackets": lambda n: '["a", ' * (n // 6),
    "brackets that are not open": lambda n: '{"a":' * (n // 10) + "]" * (n // 2),
    "brackets": lambda n: "[" * (n // 2) + "oops" + "]" * (n // 2),
    "numbers": lambda n: "[" + "1, " * (n // 3) + "]",
    "sets": lambda n: "{1, " * (n // 4),
    "calls of dict": lambda n: "dict(a=" * (n // 7),
    "comments": lambda n: "[" + "'a', # it's\n" * (n // 12) + "]",
    "a long comment": lambda n: "['a' #" + " #" * (n // 2) + "\n]",
    "signs of comments in a string": lambda n: '"' + '" # ' * (n // 4) + '"',
    "a long number": lambda n: "1" * n,
}


class Work:
    amount = 0  # the characters that patterns and tags look at


class Counted:
    """A pattern that counts the characters that it looks at."""

    def __init__(self, work: Work, real: re.Pattern[str]) -> None:
        self._work, self._real = work, real

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._real, name)
        is_counted = name in ("match", "fullmatch", "search")
        return partial(self._counted, name, method) if is_counted else method

    def _counted(
        self, name: str, method: Any, text: str, begin: int = 0, end: int = sys.maxsize
    ) -> re.Match[str] | None:
        found: re.Match[str] | None = method(text, begin, end)
        rest = min(end, len(text)) - begin
        in_vain = rest if name == "search" else min(rest, MOST_IN_VAIN)
        self._work.amount += in_vain if found is None else found.end() - begin
        return found


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    work = Work()
    for module in MODULES:
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern):
                monkeypatch.setattr(module, name, Counted(work, value))
    compiled, find = respelling.quote_or_escape, lexer.Literals.find
    for module in (respelling, value_text):
        monkeypatch.setattr(module, "quote_or_escape", lambda quote: Counted(work, compiled(quote)))

    def counted_find(self: lexer.Literals, text: str) -> tuple[int, int] | None:
        found = find(self, text)
        work.amount += len(text) if found is None else found[1]
        return found

    monkeypatch.setattr(lexer.Literals, "find", counted_find)
    return work


# Of a call that stands for any other: its value is replaced.
VALUE = 987654321


def answer(way: str, value: str) -> str:
    """A call with this value, between words."""
    call = written(way, [("get_weather", {"note": VALUE})])
    return f"Hello. {call.replace(str(VALUE), value)} Bye."


def amount(work: Work, action: Callable[[], object]) -> int:
    work.amount = 0
    return calls(action) + work.amount


def read(family: str, ids: list[int]) -> None:
    """As a server reads an answer that arrives in short parts."""
    parsing = Parsing(family, TOOLS, opens_reasoning=False)
    reader = ChoiceReader(parsing.writer, CharacterDecoder(), parsing.parser)
    for at in range(0, len(ids), TOKEN_CHARS):
        reader.feed(ids[at : at + TOKEN_CHARS])
    reader.finish("stop")


def check_growth(work: Work, of: Callable[[int], Callable[[], object]]) -> None:
    short, long = (amount(work, of(size)) for size in (SHORT, LONG))
    assert long < short * MOST_GROWTH * LONG / SHORT


@table("kind", VALUES)
@table("family", FAMILIES)
def test_the_work_grows_with_the_length_of_an_answer(family, kind, work):
    def of(size: int) -> Callable[[], object]:
        ids = ids_of(answer(family, VALUES[kind](size)))
        return lambda: read(family, ids)

    check_growth(work, of)


@table("kind", VALUES)
def test_so_does_that_for_a_value_between_tags(kind, work):
    values = {size: VALUES[kind](size) for size in (SHORT, LONG)}
    check_growth(
        work, lambda size: lambda: argument_json(values[size], frozenset({"array", "object"}))
    )


@table("way", {family: way for way, (family, _) in WRITERS.items()}.values())
def test_so_does_that_for_an_answer_that_mentions_calls(way, work):
    call = written(way, [PING])

    def of(size: int) -> Callable[[], object]:
        ids = ids_of((call[: len(call) // 2] + " ") * (size // len(call)))
        return lambda: read(WRITERS[way][0], ids)

    check_growth(work, of)
