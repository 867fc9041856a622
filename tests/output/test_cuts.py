"""Properties of every output family, future families included. No answer depends on where tokens
end: drawn texts of all families, damaged in drawn ways, are each read whole, character by character
and in drawn parts."""

from collections.abc import Iterator
from random import Random
from typing import Any

from tests.examples import examples
from tests.tables import table
from vinery_serving.core.events import ReasoningDelta, TextDelta
from vinery_serving.core.request import Tool, ToolChoice, ToolMode
from vinery_serving.core.tools import custom_tool
from vinery_serving.grammars.families.registry import FAMILIES, by_name

from . import families
from .builders import Folded, a_parser, cut, events_of, folded
from .families import WRITERS, Call

TOOLS = [*families.TOOLS, custom_tool("run", None, None)]
LISTED = [Tool("ping"), Tool("get_weather", None, {"type": "object"})]
ARGUMENTS = '{"city": "Paris; {"}'
NUM_TEXTS = 1_000 if examples(1) == 1 else 100_000  # by day, and by night
MOST_CUTS = 6
CHARS = [*" \n\"'{}[]()<>=,:;\\|/`", "a", "é", "😀", "\\n", "\\u00", "\\ud83d", "```", '<|"|>']
WORDS = [
    *CHARS,
    "Hi.",
    " and so on",
    "Rome, Italy",
    '"city": ',
    "city=",
    "city:",
    "null",
    "3",
    "f(x)",
    " # it's\n",
    "dict(a=",
    "{1, ",
    *('"input": ', "\\u00e9", "\\udf47"),
]
VALUES = [
    "Paris",
    "a, b: c",
    'cry "hi"',
    "it's",
    "f(x)",
    "a[0]",
    "x = {1}\n",
    "C:\\new",
    "",
    5,
    True,
]
LISTS = [["a", "b"], [], [1, {"a": "}"}], None]


def texts_in(tag: Any) -> Iterator[str]:
    """All fixed texts of a structural tag, with arguments where JSON is expected."""
    match tag:
        case {"type": "tag", **tag}:
            yield from (tag["begin"], *texts_in(tag["content"]), tag["end"])
        case {"type": "const_string", "value": value}:
            yield value
        case {"type": "grammar" | "json_schema"}:
            yield ARGUMENTS
        case dict():
            for value in tag.values():
                yield from texts_in(value)
        case list():
            for each in tag:
                yield from texts_in(each)


def syntax_of(name: str) -> list[str]:
    """Return whole calls, parts of calls, and tags."""
    family = by_name(name)
    texts = [*family.parser.special_texts]
    if family.grammar.supports_calls:
        choice = ToolChoice(ToolMode.REQUIRED)
        parts = list(texts_in(family.grammar.calls(LISTED, choice, parallel=True)))
        texts += ["".join(parts), *parts]
    texts += texts_in(family.grammar.after_reasoning({"type": "const_string", "value": "Yes."}))
    return [text for text in texts if text]


class Drawing:
    """Texts of one family."""

    def __init__(self, name: str, random: Random) -> None:
        self._random = random
        calls = name.rpartition("+")[2]
        self._ways = [write for family, write in WRITERS.values() if family == calls]
        self._syntax = syntax_of(name)
        tags = by_name(name).parser.reasoning
        self._reasoning = [tags.open.text, tags.closing, "Hm.", "", ""] if tags else [""]

    def texts(self, number: int) -> Iterator[str]:
        for _ in range(number):
            text = "".join(self._part() for _ in range(self._random.randint(1, 3)))
            for _ in range(self._random.choice((0, 1, 1, 2, 3, 5))):
                text = self._damaged(text)
            yield text

    def _part(self) -> str:
        pick = self._random.choice
        if self._ways and self._random.random() < 0.7:
            calls = [self._call() for _ in range(pick((1, 1, 2)))]
            return pick(self._reasoning) + pick(self._ways)(calls) + pick(("", "\n", "Done."))
        return "".join(pick([*self._syntax, *WORDS]) for _ in range(self._random.randint(1, 6)))

    def _call(self) -> Call:
        pick = self._random.choice
        arguments = {
            "city": pick([*VALUES, pick(self._syntax)]),
            "at": pick(LISTS),
            "more": {"a": pick(VALUES)},
            "input": pick(VALUES),
        }
        names = self._random.sample(list(arguments), self._random.randint(0, 3))
        return pick(("get_weather", "ping", "run")), {name: arguments[name] for name in names}

    def _damaged(self, text: str) -> str:
        """With some characters lost, doubled or added."""
        start = self._random.randint(0, len(text))
        end = min(len(text), start + self._random.randint(0, 8))
        added = self._random.choice(
            (text[start:end] * 2, *self._syntax, *WORDS, *[""] * len(WORDS))
        )
        if self._random.random() < 0.1:
            return text[:start]
        return text[:start] + added + text[end:]


def test_no_answer_depends_on_where_tokens_end():
    random = Random()
    names = sorted(FAMILIES)
    for name in names:
        for text in Drawing(name, random).texts(NUM_TEXTS // len(names) + 1):
            opens, is_whole = random.random() < 0.3, random.random() < 0.6
            cuts = [random.randint(0, len(text)) for _ in range(random.randint(1, MOST_CUTS))]

            def read(parts: list[str]) -> Folded:
                parser = a_parser(name, tools=TOOLS, opens_reasoning=opens)  # noqa: B023
                return folded(parser, parts, is_whole=is_whole)  # noqa: B023

            whole = read([text])
            case = f"{name} {opens=} {is_whole=} {text!r}"
            assert read(list(text)) == whole, case
            assert read(cut(text, cuts)) == whole, f"{case} {cuts}"


@table("name", [name for name in sorted(FAMILIES) if "+" not in name])
def test_without_tools_no_call_is_read_and_an_answer_without_syntax_stays_as_it_is(name):
    text = "".join(syntax_of(name)) + "Hello."
    events = events_of(a_parser(name, has_tools=False), [text])
    assert {type(event) for event in events} <= {TextDelta, ReasoningDelta}

    if not by_name(name).grammar.starts_in_reasoning:
        for text in ("Hello.", "a < b", '{"a": 1}', "[1, {}]", "x[0] {y} | z\n"):
            assert folded(a_parser(name, tools=LISTED), [text]) == [("text", text)]
