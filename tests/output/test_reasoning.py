"""Reasoning, alone and before tool calls."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vinery_serving.constraints.families.registry import by_name

from .builders import a_parser, cut, folded, read

CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'


def test_it_splits_reasoning_from_the_answer():
    assert read("think", "<think>\nHm.\n</think>\n\nYes.") == [
        ("reasoning", "Hm."),
        ("text", "Yes."),
    ]


def test_reasoning_that_the_prompt_opened_needs_no_tag():
    assert read("think", "Hm.\n</think>\n\nYes.", opens_reasoning=True) == [
        ("reasoning", "Hm."),
        ("text", "Yes."),
    ]


def test_reasoning_that_the_prompt_opened_may_be_opened_again():
    assert read("think", "\n<think>Hm.</think>Yes.", opens_reasoning=True) == [
        ("reasoning", "Hm."),
        ("text", "Yes."),
    ]


def test_white_space_inside_reasoning_is_kept():
    assert read("think", "<think>\none\n\ntwo \n</think>Yes.") == [
        ("reasoning", "one\n\ntwo"),
        ("text", "Yes."),
    ]


def test_empty_reasoning_is_none():
    assert read("think", "<think>\n\n</think>\n\nYes.") == [("text", "Yes.")]


@pytest.mark.parametrize("end", ["", "\n", "</thi", "\n</think"])
def test_reasoning_that_is_never_closed_is_all_reasoning(end):
    text = f"Hm, let me see{end}"

    assert read("think", text, opens_reasoning=True) == [("reasoning", text.rstrip())]
    assert read("think", f"<think>{text}") == [("reasoning", text.rstrip())]


def test_an_answer_without_reasoning_is_text():
    assert read("think", " Yes.") == [("text", " Yes.")]


def test_an_answer_may_speak_about_the_tags():
    text = "Write <think> and </think> around it."

    assert read("think", text) == [("text", text)]


def test_reasoning_may_mention_tool_calls():
    assert read("think+hermes", f"<think>I write {CALL}.</think>{CALL}") == [
        ("reasoning", f"I write {CALL}."),
        ("f", "{}"),
    ]


def test_calls_follow_reasoning():
    assert read("think+hermes", f"Hm.\n</think>\n\n{CALL}\n{CALL}", opens_reasoning=True) == [
        ("reasoning", "Hm."),
        ("f", "{}"),
        ("f", "{}"),
    ]


def test_it_knows_whether_it_is_inside_reasoning():
    parser = a_parser("think")
    seen = []

    for part in ["<thi", "nk>", "Hm.", "</th", "ink>", "\n\n", "Yes."]:
        parser.feed(part)
        seen.append(parser.is_reasoning)

    assert seen == [False, True, True, True, False, False, False]


def test_opened_reasoning_is_read_from_the_start():
    assert a_parser("think", opens_reasoning=True).is_reasoning


_outputs = st.lists(
    st.sampled_from(
        ["<think>", "</think>", "\n", " ", "Hm.", "Yes <b>.", "<", "/think>", CALL, "<tool_call>"]
    ),
    max_size=8,
).map("".join)


@pytest.mark.parametrize("name", ["plain", "think", "hermes", "think+hermes"])
@given(text=_outputs, opens=st.booleans(), cuts=st.lists(st.integers(0, 120), max_size=8))
def test_any_cut_gives_the_same(name, text, opens, cuts):
    sent = folded(a_parser(name, opens_reasoning=opens), cut(text, cuts))

    assert sent == read(name, text, opens_reasoning=opens)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("deepseek_r1", "Hm.\n</think>\n\nYes."),
        ("deepseek_r1", "<think>\nHm.\n</think>\n\nYes."),
        ("mistral_think", "[THINK]Hm.[/THINK]Yes."),
        ("granite_think", "Here is my thought process: Hm.\n\nHere is my response: Yes."),
        ("granite_think", "Here's my thought process:\nHm.\nHere's my response:\nYes."),
        ("granite_think", "<think>Hm.</think> <response> Yes. </response>"),
        ("granite_think", "<think>Hm.</think>\n<response>Yes.</response> \n"),
        ("granite_think", "<think>Hm.</think>Yes."),
    ],
)
def test_reasoning_of_each_form_is_split_from_the_answer(name, text):
    assert read(name, text) == [("reasoning", "Hm."), ("text", "Yes.")]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<response>Yes.", "Yes."),
        ("<response>Yes. </resp", "Yes. </resp"),
        ("<response> a \n b\n</response>!", "a \n b!"),
        ("The tag <response> is text.", "The tag <response> is text."),
        ("<resp", "<resp"),
    ],
)
def test_marks_around_an_answer_are_no_part_of_it(text, answer):
    assert read("granite_think", text) == [("text", answer)]


def test_calls_may_be_inside_the_marks_of_an_answer():
    call = '<|tool_call|>[{"name": "get_weather", "arguments": {}}]'

    assert read("granite_think+granite", f"<response>{call}</response>") == [("get_weather", "{}")]


def test_what_r1_writes_without_an_end_is_all_reasoning():
    assert read("deepseek_r1", "Hm, let me") == [("reasoning", "Hm, let me")]
    assert a_parser("deepseek_r1").is_reasoning


@pytest.mark.parametrize("name", ["mistral_think", "granite_think"])
def test_forms_that_the_model_opens_itself_may_be_missing(name):
    assert read(name, "Here is the answer.") == [("text", "Here is the answer.")]


@pytest.mark.parametrize("name", ["think", "deepseek_r1", "mistral_think", "granite_think"])
@pytest.mark.parametrize("calls", ["hermes", "llama3"])
def test_reasoning_of_every_form_goes_with_every_family(name, calls):
    tags = by_name(name).parser.reasoning
    call = CALL if calls == "hermes" else '{"name": "get_weather", "parameters": {}}'

    reasoning, *others = read(f"{name}+{calls}", f"{tags.open.text}Hm.{tags.close.text}{call}")

    assert reasoning == ("reasoning", "Hm.")
    assert others == [("f" if calls == "hermes" else "get_weather", "{}")]
