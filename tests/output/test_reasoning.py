"""Reasoning, alone and before tool calls."""

from tests.tables import table
from vinery_serving.core.request import Tool
from vinery_serving.grammars.families.registry import by_name

from . import forms
from .builders import Folded, a_parser
from .forms import Rows, check, row, rows

CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
TOOLS = [Tool("f"), Tool("get_weather")]
HM, YES = ("reasoning", "Hm."), ("text", "Yes.")


def read(name: str, text: str, **options: bool) -> Folded:
    return forms.read(name, text, tools=TOOLS, **options)


def text_(text: str) -> list[tuple[str, str]]:
    return [("text", text)]


READ: Rows = {
    "it splits reasoning from the answer": row(
        "think", "<think>\nHm.\n</think>\n\nYes.", [HM, YES]
    ),
    "white space inside reasoning is kept": row(
        "think", "<think>\none\n\ntwo \n</think>Yes.", [("reasoning", "one\n\ntwo"), YES]
    ),
    "empty reasoning is none": row("think", "<think>\n\n</think>\n\nYes.", [YES]),
    "an answer without reasoning is text": row("think", " Yes.", text_(" Yes.")),
    "an answer may speak about the tags": row(
        "think",
        "Write <think> and </think> around it.",
        text_("Write <think> and </think> around it."),
    ),
    "reasoning may mention tool calls": row(
        "think+hermes",
        f"<think>I write {CALL}.</think>{CALL}",
        [("reasoning", f"I write {CALL}."), ("f", "{}")],
    ),
    **{
        f"{name} is split from the answer: {text}": row(name, text, [HM, YES])
        for name, text in [
            ("deepseek_r1", "Hm.\n</think>\n\nYes."),
            ("deepseek_r1", "<think>\nHm.\n</think>\n\nYes."),
            ("mistral_think", "[THINK]Hm.[/THINK]Yes."),
            ("granite_think", "Here is my thought process: Hm.\n\nHere is my response: Yes."),
            ("granite_think", "Here's my thought process:\nHm.\nHere's my response:\nYes."),
            ("granite_think", "<think>Hm.</think> <response> Yes. </response>"),
            ("granite_think", "<think>Hm.</think>\n<response>Yes.</response> \n"),
            ("granite_think", "<think>Hm.</think>Yes."),
        ]
    },
    **{
        f"marks around an answer are no part of it: {text}": row(
            "granite_think", text, text_(answer)
        )
        for text, answer in [
            ("<response>Yes.", "Yes."),
            ("<response>Yes. </resp", "Yes. </resp"),
            ("<response> a \n b\n</response>!", "a \n b!"),
            ("The tag <response> is text.", "The tag <response> is text."),
            ("<resp", "<resp"),
        ]
    },
    "calls may be inside the marks of an answer": row(
        "granite_think+granite",
        '<response><|tool_call|>[{"name": "get_weather", "arguments": {}}]</response>',
        [("get_weather", "{}")],
    ),
    "what r1 writes without an end is all reasoning": row(
        "deepseek_r1", "Hm, let me", [("reasoning", "Hm, let me")]
    ),
    **{
        f"{name} may be missing": row(name, "Here is the answer.", text_("Here is the answer."))
        for name in ("mistral_think", "granite_think")
    },
}
# After a prompt that opened the reasoning.
OPENED: Rows = {
    "it needs no tag": row("think", "Hm.\n</think>\n\nYes.", [HM, YES]),
    "it may be opened again": row("think", "\n<think>Hm.</think>Yes.", [HM, YES]),
    "calls follow it": row(
        "think+hermes", f"Hm.\n</think>\n\n{CALL}\n{CALL}", [HM, ("f", "{}"), ("f", "{}")]
    ),
}


@rows(READ)
def test_reasoning_is_split_from_the_answer(name, text, expected):
    assert read(name, text) == expected


@rows(OPENED)
def test_reasoning_that_the_prompt_opened_is_read(name, text, expected):
    assert read(name, text, opens=True) == expected


@table("end", ["", "\n", "</thi", "\n</think"])
def test_reasoning_that_is_never_closed_is_all_reasoning(end):
    text = f"Hm, let me see{end}"

    assert read("think", text, opens=True) == [("reasoning", text.rstrip())]
    assert read("think", f"<think>{text}") == [("reasoning", text.rstrip())]


def test_it_knows_whether_it_is_inside_reasoning():
    parser = a_parser("think")
    seen = []

    for part in ["<thi", "nk>", "Hm.", "</th", "ink>", "\n\n", "Yes."]:
        parser.feed(part)
        seen.append(parser.is_reasoning)

    assert seen == [False, True, True, True, False, False, False]
    assert a_parser("think", opens_reasoning=True).is_reasoning
    assert a_parser("deepseek_r1").is_reasoning


@table("name", ["think", "deepseek_r1", "mistral_think", "granite_think"])
@table(
    "calls, call, called",
    [("hermes", CALL, "f"), ("llama3", '{"name": "get_weather", "parameters": {}}', "get_weather")],
)
def test_reasoning_of_every_form_goes_with_every_family(name, calls, call, called):
    tags = by_name(name).parser.reasoning

    found = read(f"{name}+{calls}", f"{tags.open.text}Hm.{tags.close.text}{call}")

    assert found == [HM, (called, "{}")]


QWEN = "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"
ONYX = '<atem:function_calls>\n<atem:invoke name="f">\n</atem:invoke>\n</atem:function_calls>'
KIMI = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}"
    "<|tool_call_end|><|tool_calls_section_end|>"
)
HARMONY = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>"
DRAFT, CALLED = f"I write {CALL}", ("f", "{}")
# Reasoning that is never closed.
UNCLOSED: Rows = {
    **{
        f"a call at its end is one: {name}": row(name, text, [HM, CALLED])
        for name, text in [
            ("think+hermes", f"<think>\nHm.\n{CALL}"),
            ("think+hermes", f"<think>Hm.{CALL}\n \n"),
            ("deepseek_r1+hermes", f"Hm. {CALL}"),
            ("think+kimi_k2", f"<think>Hm.{KIMI}"),
            ("mistral_think+devstral", "[THINK]Hm.[TOOL_CALLS]f[ARGS]{}"),
            ("granite_think+granite", '<think>Hm. <|tool_call|>[{"name": "f"}]'),
            ("think+glm4", "<think>Hm.<tool_call>f</tool_call>"),
            ("think+lfm2", "<think>Hm.<|tool_call_start|>[f()]<|tool_call_end|>"),
            ("gemma4", "<|channel>thought\nHm.\n<|tool_call>call:f{}<tool_call|>"),
            ("onyx", f" to=self<|message|>Hm.{ONYX}"),
            ("gptoss", f"<|channel|>analysis<|message|>Hm.{HARMONY}"),
        ]
    },
    "calls without tags are calls, and other brackets are not": row(
        "think+llama3",
        '<think>I {think} [so]. {"name": "get_weather", "parameters": {}}',
        [("reasoning", "I {think} [so]."), ("get_weather", "{}")],
    ),
    "so are several calls, also of tags": row(
        "think+qwen3coder",
        f"<think>Hm.\n\n{QWEN}\n{QWEN}",
        [HM, ("f", '{"a": 1}'), ("f", '{"a": 1}')],
    ),
    "a call with words after it is a draft": row(
        "think+hermes", f"<think>{DRAFT}. No.", [("reasoning", f"{DRAFT}. No.")]
    ),
    "only the last calls are no drafts": row(
        "think+hermes", f"<think>{DRAFT}.\n{CALL}", [("reasoning", f"{DRAFT}."), CALLED]
    ),
    "a tag alone is none": row(
        "think+hermes", "<think>I write <tool_call> now", [("reasoning", "I write <tool_call> now")]
    ),
    "a call in reasoning that is closed is a draft": row(
        "think+hermes", f"<think>{DRAFT}\n</think>\n\n{CALL}", [("reasoning", DRAFT), CALLED]
    ),
}
UNCLOSED["drafts of onyx stay drafts"] = row(
    "onyx",
    f" to=self<|message|>I write {ONYX}<|eom|><|start|>assistant to=user<|message|>Yes.",
    [("reasoning", f"I write {ONYX}"), YES],
)


@rows(UNCLOSED)
def test_a_call_in_reasoning_counts_where_the_reasoning_ends_with_it(name, text, expected):
    check(read(name, text, is_whole=True), expected)


def test_reasoning_with_a_call_that_is_cut_stays_whole_and_a_complete_call_is_kept():
    cut = f"<think>Hm. {CALL[:-30]}"

    assert read("think+hermes", cut) == [("reasoning", cut.removeprefix("<think>"))]
    assert read("think+hermes", f"<think>Hm.{CALL}{CALL[:-30]}") == [HM, CALLED]


def test_reasoning_is_sent_at_once_up_to_what_may_be_a_call():
    parser = a_parser("think+hermes", opens_reasoning=True)

    def feed(text: str) -> str:
        return "".join(event.text for event in parser.feed(text))

    assert [feed(text) for text in ("I", " do", " <b> <tool")] == ["I", " do", " <b>"]
    assert [feed(text) for text in ("s>", f" {CALL}", "\n", "No")] == [
        *(" <tools>", "", "", f" {CALL}\nNo")
    ]
