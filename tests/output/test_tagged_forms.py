"""What only families write that have tags around each argument."""

from __future__ import annotations

import pytest

from .forms import read

# Qwen3-Coder


def qwen(key: str, value: str) -> str:
    return (
        f"<tool_call>\n<function=f>\n<parameter={key}>\n{value}\n</parameter>\n"
        "</function>\n</tool_call>"
    )


@pytest.mark.parametrize(
    ("key", "value", "argument"),
    [
        ("text", "5", '"5"'),
        ("text", "true", '"true"'),
        ("text", '{"a": 1}', r'"{\"a\": 1}"'),
        ("count", "5", "5"),
        ("count", " 5 ", "5"),
        ("count", "five", '"five"'),
        ("share", "0.50", "0.50"),
        ("share", "NaN", '"NaN"'),
        ("is_on", "true", "true"),
        ("is_on", "True", "true"),
        ("is_on", "FALSE", "false"),
        ("items", '["a", {"b": [1,2]}]', '["a", {"b": [1,2]}]'),
        ("items", "['a', True, None]", '["a", true, null]'),
        ("more", '{"a":  {"b": "}"}}', '{"a":  {"b": "}"}}'),
        ("more", "{'a': (1, 2)}", '{"a": [1, 2]}'),
        ("more", "{broken", '"{broken"'),
        ("maybe", "null", "null"),
        ("maybe", "None", '"None"'),
        ("maybe", "7", '"7"'),
        ("size", "7", "7"),
        ("size", "7.5", '"7.5"'),
        ("size", "large", '"large"'),
        ("any", "7", "7"),
        ("any", "[1]", "[1]"),
        ("any", '"quoted"', r'"\"quoted\""'),
        ("any", "words", '"words"'),
        ("unknown", "7", "7"),
    ],
)
def test_the_schema_decides_what_a_value_is(key: str, value: str, argument: str) -> None:
    assert read("qwen3coder", qwen(key, value)) == [("f", f'{{"{key}": {argument}}}')]


def test_only_one_line_break_at_each_end_of_a_value_is_syntax() -> None:
    assert read("qwen3coder", qwen("text", "\n a\n\n")) == [("f", '{"text": "\\n a\\n\\n"}')]


def test_a_value_without_line_breaks_is_read_as_well() -> None:
    text = "<tool_call><function=f><parameter=text>a</parameter></function></tool_call>"

    assert read("qwen3coder", text) == [("f", '{"text": "a"}')]


def test_two_functions_may_share_one_pair_of_outer_tags() -> None:
    one = "<function=ping>\n</function>\n"

    assert read("qwen3coder", f"<tool_call>\n{one}{one}</tool_call>Bye.") == [
        ("ping", "{}"),
        ("ping", "{}"),
        ("text", "Bye."),
    ]


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>',
        "<tool_call>\n<function=>\n</function>\n</tool_call>",
        "<tool_call>\n<function=f g>\n</function>\n</tool_call>",
        "<function=f>some words</function>",
        "Write <tool_call> or <function= to call.",
    ],
)
def test_what_is_no_call_is_given_back(text: str) -> None:
    assert read("qwen3coder", text) == [("text", text)]


def test_words_between_arguments_end_the_call() -> None:
    text = "<function=f>\n<parameter=count>\n1\n</parameter>\nand so on"

    assert read("qwen3coder", text) == [("f", '{"count": 1}'), ("text", "\nand so on")]


def test_reasoning_comes_before_the_calls() -> None:
    text = f"<think>\nI call f.\n</think>\n\n{qwen('count', '1')}"

    assert read("think+qwen3coder", text) == [
        ("reasoning", "I call f."),
        ("f", '{"count": 1}'),
    ]


# GLM-4.5


def test_a_name_alone_is_a_call_only_with_its_end() -> None:
    assert read("glm4", "<tool_call>ping\n</tool_call>") == [("ping", "{}")]
    assert read("glm4", "<tool_call>ping", is_whole=True) == [("text", "<tool_call>ping")]
    assert read("glm4", "<tool_call>ping me") == [("text", "<tool_call>ping me")]


def test_a_key_without_a_value_is_no_argument() -> None:
    text = "<tool_call>f\n<arg_key>a</arg_key>\nb</tool_call>"

    assert read("glm4", text) == [("text", text)]


# MiniCPM5


def test_a_section_may_hold_the_closing_tags() -> None:
    text = (
        '<function name="f"><param name="text"><![CDATA[</param></function>]]></param>'
        '<param name="count"> 3 </param></function>'
    )

    assert read("minicpm5", text) == [("f", '{"text": "</param></function>", "count": 3}')]


def test_only_a_section_at_the_beginning_of_a_value_is_one() -> None:
    text = '<function name="f"><param name="text">a <![CDATA[b]]></param></function>'

    assert read("minicpm5", text) == [("f", '{"text": "a <![CDATA[b]]>"}')]
