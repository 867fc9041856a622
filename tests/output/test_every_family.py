"""Properties of every output family, future families included. `test_cuts` has tests of the borders
between tokens."""

from collections.abc import Iterator
from typing import Any

from tests.tables import table
from vinery_serving.core.events import ReasoningDelta, TextDelta
from vinery_serving.core.request import Tool, ToolChoice, ToolMode
from vinery_serving.grammars.families.registry import FAMILIES, by_name

from .builders import a_parser, events_of, folded

TOOLS = [Tool("ping"), Tool("get_weather", None, {"type": "object"})]
ARGUMENTS = '{"city": "Paris; {"}'


def _is_usual(name: str) -> bool:
    """Every family alone and after reasoning, all reasoning tags with one family."""
    reasoning, plus, calls = name.partition("+")
    return not plus or reasoning == "think" or calls == "hermes"


every_family = table("name", [name for name in sorted(FAMILIES) if _is_usual(name)])


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
        parts = list(texts_in(family.grammar.calls(TOOLS, choice, parallel=True)))
        texts += ["".join(parts), *parts]
    texts += texts_in(family.grammar.after_reasoning({"type": "const_string", "value": "Yes."}))
    return [text for text in texts if text]


@every_family
def test_plain_words_are_sent_as_they_come(name):
    parser = a_parser(name, tools=TOOLS)

    sent = [[event.text for event in parser.feed(word)] for word in ("Hello", " there", ", you")]

    assert sent == [["Hello"], [" there"], [", you"]]


@table("name", [name for name in sorted(FAMILIES) if "+" not in name])
def test_without_tools_no_call_is_read_and_an_answer_without_syntax_stays_as_it_is(name):
    text = "".join(syntax_of(name)) + "Hello."
    events = events_of(a_parser(name, has_tools=False), [text])
    assert {type(event) for event in events} <= {TextDelta, ReasoningDelta}

    if not by_name(name).grammar.starts_in_reasoning:
        for text in ("Hello.", "a < b", '{"a": 1}', "[1, {}]", "x[0] {y} | z\n"):
            assert folded(a_parser(name, tools=TOOLS), [text]) == [("text", text)]
