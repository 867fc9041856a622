"""What only families write that have a notation of their own for values, or Python's."""

from __future__ import annotations

import pytest

from vinery_serving.core.events import TextDelta

from .builders import a_parser
from .forms import TOOLS, read

# Gemma 4


def gemma(arguments: str) -> str:
    return f"<|tool_call>call:f{{{arguments}}}<tool_call|>"


@pytest.mark.parametrize(
    ("arguments", "json_text"),
    [
        ('text:<|"|>a "b" \\n {,}<|"|>', r'{"text":"a \"b\" \\n {,}"}'),
        ("count:3,share:-0.5e3,is_on:true", '{"count":3,"share":-0.5e3,"is_on":true}'),
        ('items:[1,[2,<|"|>x<|"|>],{a:null}]', '{"items":[1,[2,"x"],{"a":null}]}'),
        ("more:{a:{b:[]},c:{}}", '{"more":{"a":{"b":[]},"c":{}}}'),
        ('more:{<|"|>a b<|"|>:1}', '{"more":{"a b":1}}'),
        ('"text": "a\\n\\u00e9"', r'{"text": "a\n\u00e9"}'),
        ("text:New York , count: 2", '{"text":"New York" , "count": 2}'),
        ("any:None", '{"any":null}'),
    ],
)
def test_gemmas_own_notation_becomes_json(arguments: str, json_text: str) -> None:
    assert read("gemma4", gemma(arguments)) == [("f", json_text)]


def test_a_channel_before_the_answer_is_reasoning() -> None:
    text = f"<|channel>thought\nHm, <b>.\n<channel|>I call.{gemma('count:1')}"

    assert read("gemma4", text) == [
        ("reasoning", "Hm, <b>."),
        ("text", "I call."),
        ("f", '{"count":1}'),
    ]


def test_empty_reasoning_leaves_no_trace() -> None:
    assert read("gemma4", "<|channel>thought\n<channel|>Hello") == [("text", "Hello")]


def test_reasoning_that_the_prompt_has_opened_goes_on() -> None:
    assert read("gemma4", "Hm.<channel|>Hello", opens=True) == [
        ("reasoning", "Hm."),
        ("text", "Hello"),
    ]


def test_reasoning_is_read_without_tools_too() -> None:
    text = f"<|channel>thought\nHm.<channel|>{gemma('')}"

    assert read("gemma4", text, tools=[]) == [("reasoning", "Hm."), ("text", gemma(""))]


def test_what_is_no_value_is_kept_up_to_the_closing_tag() -> None:
    text = "<|tool_call>call:f{count:1,=}<tool_call|>Done."

    assert read("gemma4", text) == [("f", '{"count":1,=}'), ("text", "Done.")]


# Python


@pytest.mark.parametrize(
    ("arguments", "json_text"),
    [
        ("", "{}"),
        ("text='it\\'s'", '{"text": "it\'s"}'),
        ('text="""two "quoted"\nlines"""', r'{"text": "two \"quoted\"\nlines"}'),
        ("text=''", '{"text": ""}'),
        (
            r'text="\ud83d\ude00 \U0001F600 \xe9 \N{BULLET} \101 \d \/"',
            '{"text": "😀 😀 é • A \\\\d /"}',
        ),
        (r'text="\ud83d."', '{"text": "�."}'),
        ("count=1_000, share=.5", '{"count": 1000, "share": 0.5}'),
        ("count=-3, share=1e5", '{"count": -3, "share": 1e5}'),
        ("is_on=True, any=None", '{"is_on": true, "any": null}'),
        ("is_on=false, any=null", '{"is_on": false, "any": null}'),
        ("items=[1, (2, 'x'), [],]", '{"items": [1, [2, "x"], []]}'),
        ("more={'a': {'b': [True]}, 2: None}", '{"more": {"a": {"b": [true]}, "2": null}}'),
        ("\n  count = 1,\n  is_on = True,\n", '{"count": 1, "is_on": true}'),
        ('**{"count": 1, "a-b": [2]}', '{"count": 1, "a-b": [2]}'),
    ],
)
@pytest.mark.parametrize("name", ["llama3_pythonic", "llama4_pythonic", "lfm2"])
def test_pythons_literals_become_json(name: str, arguments: str, json_text: str) -> None:
    begin = "<|tool_call_start|>" if name == "lfm2" else ""

    assert read(name, f"{begin}[f({arguments})]") == [("f", json_text)]


@pytest.mark.parametrize(
    "text",
    [
        "[f](https://example.org/f(1))",
        "[f(1)]",
        "[f(x)] and [g(a=1)]",
        "[f(text=oops)]",
        "[f(text=open('x'))]",
        "[unknown(a=1)]",
        "See [1], [f, g] and f(a=1).",
        '<|python_tag|>print("ping()")',
    ],
)
def test_brackets_that_are_no_call_are_text(text: str) -> None:
    assert read("llama3_pythonic", text) == [("text", text)]


def test_a_single_call_may_do_without_brackets_after_a_tag() -> None:
    text = "<|tool_call_start|>f(count=1)<|tool_call_end|>Done."

    assert read("lfm2", text) == [("f", '{"count": 1}'), ("text", "Done.")]


def test_a_forgotten_bracket_does_no_harm() -> None:
    text = "<|tool_call_start|>[f(count=1), ping()<|tool_call_end|>Done."

    assert read("lfm2", text) == [("f", '{"count": 1}'), ("ping", "{}"), ("text", "Done.")]


def test_a_word_without_quotes_is_a_string_in_a_call_that_has_started() -> None:
    text = "[f(count=1, text=oops)] Done."

    assert read("llama3_pythonic", text) == [
        ("f", '{"count": 1, "text": "oops"}'),
        ("text", " Done."),
    ]


def test_what_breaks_after_a_call_is_given_back() -> None:
    assert read("lfm2", "<|tool_call_start|>[ping(), 7]") == [("ping", "{}"), ("text", ", 7]")]


def test_lfm2_thinks_before_it_calls() -> None:
    text = "<think>Hm.</think><|tool_call_start|>[ping()]<|tool_call_end|>"

    assert read("think+lfm2", text) == [("reasoning", "Hm."), ("ping", "{}")]


def test_a_link_is_sent_as_soon_as_it_is_one() -> None:
    parser = a_parser("llama3_pythonic", tools=TOOLS)

    assert parser.feed("[pin") == []
    assert parser.feed("k](x)") == [TextDelta(0, "[pink](x)")]
