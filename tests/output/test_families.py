"""Properties of every family, in every way of writing calls.

Each of these is a weakness of some parser in the field: semicolons and braces in strings,
text after a call, more than one call, answers that the token limit cuts.
"""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.tables import table
from vinery_serving.core.events import TextDelta, ToolCallDelta

from .builders import a_call_started, a_parser, cut, events_of, folded
from .families import (
    AMONG_TEXT,
    JSON_WRITERS,
    NOON,
    PARIS,
    PING,
    TOOLS,
    WRITERS,
    Call,
    JsonCall,
    among_text,
    as_messages,
    calls_in,
    json_ways,
    read,
    ways,
    written,
)

NESTED: Call = (
    "get_weather",
    {"city": "x", "at": [1, [2, {"b": "}"}], None], "more": {"a": {"c": [True, "]"]}}, "days": -3},
)


@ways
@table("calls", [[PARIS], [PARIS, NOON], [PING], [PING, PING, PARIS], [NESTED, PARIS]])
def test_it_reads_all_calls(way, calls):
    assert calls_in(read(way, written(way, calls))) == calls


@among_text
def test_text_around_calls_is_kept_also_when_it_is_cut_but_white_space_is_not_an_answer(way):
    call = written(way, [PARIS])
    assert calls_in(read(way, f"\n\n{call}\n \n")) == [PARIS]
    assert calls_in(read(way, f"First.\n{call}\nThen.\n{call}\nDone.")) == [
        *(("text", "First.\n"), PARIS, ("text", "\nThen.\n"), PARIS, ("text", "\nDone."))
    ]
    cut_answer = calls_in(read(way, f"{call}\nThe weather is fi"))
    assert cut_answer == [PARIS, ("text", "\nThe weather is fi")]
    # Calls may be in several groups.
    groups = written(way, [PARIS, PING]) + "\n" + written(way, [NOON])
    assert calls_in(read(way, groups)) == [PARIS, PING, NOON]


@as_messages
def test_an_answer_may_follow_a_call(way):
    final = {"onyx": "<|eom|><|start|>assistant to=user<|message|>"}.get(
        way, "<|start|>assistant<|channel|>final<|message|>"
    )

    assert calls_in(read(way, f"{written(way, [PARIS])}{final}Done.")) == [PARIS, ("text", "Done.")]


@ways
@table(
    "value",
    [
        "}{]['",
        'a "quoted" word',
        "one; two; {three}",
        "a, b], c)",
        "back\\slash\\",
        r"C:\new\x41\u0041 \d",
        "emoji 😀 and é",
        "\n\ntwo lines\n",
        "  blanks  ",
        "",
        "null",
        "5",
        "true",
        '{"name": "ping", "arguments": {}}',
        "<tool_call></tool_call><|python_tag|>[ping()]<function=ping>",
        "functools[[TOOL_CALLS][ARGS]<｜tool▁sep｜>",
        "```json\n{}\n```",
        "</function></div><b>&amp;</b>",
        "it's",
        '"""',
    ],
)
def test_strings_in_arguments_may_hold_anything(way, value):
    calls = [("get_weather", {"city": value, "days": 1}), PARIS]

    assert calls_in(read(way, written(way, calls))) == calls


# Families that write arguments in Python or in Gemma's notation send a call when it is complete.
WHOLE = [way for way in WRITERS if "python" in way or "gemma" in way or way == "lfm2"]
growing_ways = table("way", [way for way in WRITERS if way not in WHOLE])


@growing_ways
def test_a_call_is_sent_with_its_first_argument_and_a_string_as_it_grows(way):
    text = written(way, [PARIS])
    parser = a_parser(WRITERS[way][0], tools=TOOLS)
    events = [event for part in cut(text, [text.index("aris")]) for event in parser.feed(part)]
    assert a_call_started("get_weather") in events

    words = "word " * 20
    parser = a_parser(WRITERS[way][0], tools=TOOLS)
    events = events_of(parser, list(written(way, [("get_weather", {"city": words})])))
    grown = [event.text for event in events if isinstance(event, ToolCallDelta)]
    assert json.loads("".join(grown)) == {"city": words}
    # White space waits for the next text: before a tag it is no part of an unclosed string.
    assert len(grown) >= len(words.replace(" ", "")) - 1


@ways
def test_a_call_that_is_cut_stays_open_and_is_never_complete_with_less_than_all(way):
    [ping, *begun] = read(way, written(way, [PING, PARIS]).split("aris")[0])
    assert ping == ("ping", "{}")
    arguments = [(name, each.replace(" ", "")) for name, each in begun]
    assert arguments == ([] if way in WHOLE else [("open get_weather", '{"city":"P')])

    calls = [("get_weather", {"city": "Paris", "days": 12})]
    text = written(way, calls)
    for end in range(len(text)):
        whole = [call for call in read(way, text[:end]) if call[0] == "get_weather"]
        assert calls_in(whole) in ([], calls)


# Without a tag only the tools' names distinguish a call from other brackets.
_UNTAGGED = (
    "llama3",
    "llama3_pythonic",
    "llama4_pythonic without its tags",
    "mistral without its tag",
)


@table(
    "way",
    # A tag of phi4 begins like a word.
    [way for way in (*JSON_WRITERS, *AMONG_TEXT) if way not in (*_UNTAGGED, "phi4")],
)
def test_a_call_that_is_cut_before_its_name_leaves_no_markup(way):
    text = written(way, [PARIS]).split("weather")[0]

    assert all(read(way, f"Hi.{text[:end]}") == [("text", "Hi.")] for end in range(2, len(text)))


@ways
def test_text_is_sent_at_once_also_what_only_looks_like_syntax(way):
    parser = a_parser(WRITERS[way][0], tools=TOOLS)
    text = "if a < b: [see](this) {or} <|that> and [1, 2], <tool>, call:me{x}, to=you"

    assert parser.feed("Hello") == [TextDelta(0, "Hello")]
    assert parser.feed(" you") == [TextDelta(0, " you")]
    assert read(way, text) == [("text", text)]


@among_text
def test_a_call_without_tools_or_one_that_ends_before_its_name_is_given_back(way):
    text = written(way, [PARIS])
    begun = text.split("weather")[0]
    with_tools = a_parser(WRITERS[way][0], tools=TOOLS)

    assert folded(a_parser(WRITERS[way][0], has_tools=False), [text]) == [("text", text)]
    assert folded(with_tools, [begun], is_whole=True) == [("text", begun)]


@table("way", [way for way in WRITERS if way not in _UNTAGGED])
def test_an_unknown_tool_is_called_all_the_same(way):
    calls = [("unheard_of", {"a": [1, {"b": None}], "c": "x"})]

    assert calls_in(read(way, written(way, calls))) == calls


# A string of Gemma cannot contain Gemma's quote, nor a CDATA section its end.
_strings = st.text("ab{}[]()\"'\\;,=<>/|: \n😀", max_size=8).filter(
    lambda text: '<|"|>' not in text and "]]>" not in text
)
_objects = st.dictionaries(st.sampled_from("abc"), st.one_of(_strings, st.integers()))
_arguments = st.fixed_dictionaries(
    {},
    optional={
        "city": _strings,
        "days": st.integers(),
        "at": st.lists(st.one_of(_strings, st.booleans(), _objects), max_size=3),
        "more": _objects,
        "is_hot": st.booleans(),
    },
)
_calls = st.lists(
    st.one_of(st.tuples(st.just("get_weather"), _arguments), st.sampled_from([NOON, PING])),
    min_size=1,
    max_size=3,
)


# Families that write arguments as JSON, which is sent unchanged.


def json_written(way: str, *calls: JsonCall) -> str:
    return JSON_WRITERS[way][1](calls)


JSON_PARIS = ("get_weather", '{"city": "Paris"}')


@json_ways
def test_arguments_keep_the_exact_text_of_the_model_though_the_end_is_missing(way):
    arguments = '{ "b":1.50,\n  "a" : [ true ,null ] }'
    assert read(way, json_written(way, ("ping", arguments))) == [("ping", arguments)]

    text = json_written(way, JSON_PARIS)
    at = text.index("}")
    assert read(way, text[: at + 1]) in ([JSON_PARIS], [("open get_weather", JSON_PARIS[1])])
    assert all(read(way, text[:end]) == [JSON_PARIS] for end in range(at + 2, len(text)))
    # White space between calls is no answer, also where text stood before.
    answer = [("text", "First.\n"), JSON_PARIS, JSON_PARIS]
    assert read(way, f"First.\n{text}\n\n{text}\n") == answer


@json_ways
@table(
    "text",
    [
        *('cry "hi" to all', 'the "best" one', 'a 5" pipe', 'he wrote "no", then left'),
        *("C:\\Users\\me", "C:\\Program Files\\x", "D:\\work\\new", "\\d+", "\\w*\\.py", "a\\_b"),
        *("two\nlines", "a\tb", "100\\%"),
    ],
)
def test_what_a_string_should_escape_is_read_as_it_was_meant(way, text):
    call = ("get_weather", f'{{"city": "{text}", "days": 1}}')

    calls = calls_in(read(way, json_written(way, call, JSON_PARIS)))

    assert calls == [("get_weather", {"city": text, "days": 1}), PARIS]


@ways
@settings(max_examples=examples(10))
@given(calls=_calls)
def test_all_well_formed_calls_come_back_exactly(way, calls):
    assert calls_in(read(way, written(way, calls))) == calls
