"""What only families write whose output is a sequence of messages."""

from __future__ import annotations

import pytest

from .builders import a_parser
from .forms import TOOLS, read

# Muse Glimmer (onyx)


def invoke(name: str, text: str = "Paris") -> str:
    return (
        f'<atem:function_calls>\n<atem:invoke name="{name}">\n'
        f'<atem:parameter name="text">{text}</atem:parameter>\n</atem:invoke>\n'
        "</atem:function_calls>"
    )


def test_a_message_to_itself_is_reasoning() -> None:
    text = " to=self<|message|>Hm.<|eom|><|start|>assistant to=user<|message|>Hello!<|eot|>"

    assert read("onyx", text) == [("reasoning", "Hm."), ("text", "Hello!")]


def test_a_call_in_reasoning_is_none() -> None:
    text = (
        f" to=self<|message|>I might {invoke('f')}<|eom|><|start|>assistant to=user<|message|>No."
    )

    assert read("onyx", text) == [("reasoning", f"I might {invoke('f')}"), ("text", "No.")]


def test_blanks_in_a_value_are_the_values() -> None:
    call = invoke("f", "  a\n")

    assert read("onyx", f" to=f<|message|>{call}<|eot|>") == [("f", '{"text": "  a\\n"}')]


@pytest.mark.parametrize(
    ("written", "name"), [("f", "f"), ("f.f", "f"), ("my.f", "f"), ("my.g", "my.g")]
)
def test_a_name_space_before_a_known_name_is_dropped(written: str, name: str) -> None:
    assert read("onyx", f" to={written}<|message|>{invoke(written)}")[0][0] == name


# gpt-oss

START = "<|start|>assistant"
FINAL = "<|channel|>final<|message|>"
ANALYSIS = "<|channel|>analysis<|message|>"
NOTE = "<|channel|>commentary<|message|>"


def test_every_channel_goes_where_it_belongs() -> None:
    text = (
        f"{ANALYSIS}Hm.<|end|>{START}{NOTE}I call f.<|end|>{START}<|channel|>commentary "
        'to=functions.f <|constrain|>json<|message|>{"count": 1}<|call|>'
    )

    assert read("gptoss", text) == [
        ("reasoning", "Hm."),
        ("text", "I call f."),
        ("f", '{"count": 1}'),
    ]


@pytest.mark.parametrize(
    "head",
    [
        "<|channel|>commentary to=functions.f <|constrain|>json",
        "<|channel|>commentary to=functions.f<|constrain|>json",
        "<|channel|>commentary to=functions.f json",
        "<|channel|>commentary to=functions.f",
        "<|channel|>commentary to=f code",
        "<|channel|>analysis to=functions.f code",
        " to=functions.f<|channel|>commentary <|constrain|>json",
        f"{START} to=functions.f<|channel|>commentary json",
    ],
)
def test_a_recipient_begins_a_call_wherever_it_is(head: str) -> None:
    assert read("gptoss", f'{head}<|message|>{{"text": "a<|b"}}<|call|>') == [
        ("f", '{"text": "a<|b"}')
    ]


@pytest.mark.parametrize("end", ["<|end|>", "<|return|>", "<|call|>", "", f"<|end|>{START}"])
def test_a_final_answer_is_sent_however_it_ends(end: str) -> None:
    assert read("gptoss", f"{FINAL}The answer{end}") == [("text", "The answer")]


def test_messages_of_one_kind_are_parted_by_a_line_break() -> None:
    text = f"{ANALYSIS}A<|end|>{START}{ANALYSIS}B<|end|>{START}{NOTE}C<|end|>{START}{FINAL}D"

    assert read("gptoss", text) == [("reasoning", "A\nB"), ("text", "C\nD")]


def test_a_call_without_its_end_is_complete_with_its_last_bracket() -> None:
    head = "<|channel|>commentary to=functions.f<|message|>"

    assert read("gptoss", f'{head}{{"count": 1}}') == [("f", '{"count": 1}')]
    assert read("gptoss", f'{head}{{"count": 1') == [("open f", '{"count": 1')]
    assert read("gptoss", f"{head}<|call|>") == [("f", "{}")]


def test_an_answer_without_any_head_is_an_answer() -> None:
    assert read("gptoss", '{"a": 1}') == [("text", '{"a": 1}')]


@pytest.mark.parametrize("text", ["<|channel|>fin", "<|channel|>analysis<|mess", "<|start|>"])
def test_a_head_that_is_cut_is_no_answer(text: str) -> None:
    assert read("gptoss", text) == []


def test_without_tools_a_call_is_text() -> None:
    text = "<|channel|>commentary to=functions.f<|message|>{}<|call|>"

    assert read("gptoss", text, tools=[]) == [("text", "{}")]


def test_it_is_reasoning_inside_reasoning_only() -> None:
    parser = a_parser("gptoss", tools=TOOLS)
    states = []
    for part in (ANALYSIS, "Hm", "<|end|>", START, FINAL, "Hi"):
        parser.feed(part)
        states.append(parser.is_reasoning)

    assert states == [True, True, False, False, False, False]
