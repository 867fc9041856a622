"""Which tools a request offers, and which of them may be called."""

from __future__ import annotations

from typing import Any

import pytest

from serving.core.request import (
    Conversation,
    Endpoint,
    TextGrammar,
    TextSyntax,
    Tool,
    ToolCall,
    ToolChoice,
    ToolMode,
)

from .exchanges import PLAIN, answered, exchange, request

TOOLS = [{"type": "function", "function": {"name": name}} for name in "abc"]
ENDPOINTS = pytest.mark.parametrize("endpoint", [Endpoint.CHAT, Endpoint.RESPONSES])


def conversation(endpoint: Endpoint, **fields: Any) -> Conversation:
    prompt = request(endpoint, **fields).prompt
    assert isinstance(prompt, Conversation)
    return prompt


def nested(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def flat(name: str) -> dict[str, Any]:
    return {"type": "function", "name": name}


@ENDPOINTS
@pytest.mark.parametrize("mode", ["auto", "required"])
@pytest.mark.parametrize("named", [nested, flat, lambda name: {"name": name}])
def test_some_tools_are_allowed_in_the_forms_of_both_endpoints(
    endpoint: Endpoint, mode: str, named: Any
) -> None:
    members = {"mode": mode, "tools": [named("c"), named("a"), named("c")]}
    choice = ToolChoice(ToolMode(mode), allowed=("c", "a"))

    for value in ({"allowed_tools": members}, members):
        asked = conversation(endpoint, tools=TOOLS, tool_choice={"type": "allowed_tools", **value})
        assert asked.tool_choice == choice
        assert asked.tools == (Tool("a"), Tool("b"), Tool("c")), "the prompt stays the same"
        assert asked.callable_tools == (Tool("a"), Tool("c"))


def test_where_only_hosted_tools_are_allowed_none_is_called() -> None:
    members = {"mode": "auto", "tools": [{"type": "web_search"}]}

    asked = conversation(
        Endpoint.RESPONSES, tools=TOOLS, tool_choice={"type": "allowed_tools", **members}
    )

    assert asked.tool_choice == ToolChoice(ToolMode.NONE)


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        (ToolChoice(), "abc"),
        (ToolChoice(ToolMode.REQUIRED), "abc"),
        (ToolChoice(ToolMode.NONE), ""),
        (ToolChoice(ToolMode.NAMED, "b"), "b"),
        (ToolChoice(allowed=("b", "c")), "bc"),
    ],
)
def test_the_choice_says_which_tools_may_be_called(choice: ToolChoice, names: str) -> None:
    asked = Conversation((), tuple(Tool(name) for name in "abc"), choice)

    assert [tool.name for tool in asked.callable_tools] == list(names)


@pytest.mark.parametrize(
    "fields",
    [
        {"mode": ToolMode.NONE, "allowed": ("a",)},
        {"mode": ToolMode.NAMED, "name": "a", "allowed": ("a",)},
        {"allowed": ()},
        {"name": "a"},
        {"mode": ToolMode.NAMED},
    ],
)
def test_a_choice_that_contradicts_itself_cannot_be_made(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="mode"):
        ToolChoice(**fields)


def test_a_response_repeats_the_choice_in_its_flat_form() -> None:
    members = {"mode": "required", "tools": [nested("a")]}
    asked = exchange(
        Endpoint.RESPONSES,
        tools=TOOLS,
        tool_choice={"type": "allowed_tools", "allowed_tools": members},
    )

    assert answered(asked, PLAIN)["tool_choice"] == {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [flat("a")],
    }


# -- Custom tools ---------------------------------------------------------------------------

REGEX = {"syntax": "regex", "definition": "[a-z]+"}
NESTED_RUN = {"name": "run", "description": "Run", "format": {"type": "grammar", "grammar": REGEX}}
FLAT_RUN = {"name": "run", "description": "Run", "format": {"type": "grammar", **REGEX}}


@ENDPOINTS
@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({"type": "custom", "custom": NESTED_RUN}, "tools[1].custom.format.grammar.definition"),
        ({"type": "custom", "custom": FLAT_RUN}, "tools[1].custom.format.definition"),
        ({"type": "custom", **FLAT_RUN}, "tools[1].format.definition"),
        ({"type": "custom", **NESTED_RUN}, "tools[1].format.grammar.definition"),
    ],
)
def test_a_custom_tool_is_a_function_of_one_text(
    endpoint: Endpoint, tool: dict[str, Any], param: str
) -> None:
    [_, run] = conversation(endpoint, tools=[flat("a"), tool]).tools

    assert (run.name, run.description, run.is_custom, run.strict) == ("run", "Run", True, True)
    assert run.input_grammar == TextGrammar(TextSyntax.REGEX, "[a-z]+", param)
    assert run.parameters == {
        "type": "object",
        "properties": {
            "input": {
                "type": "string",
                "description": "Plain text that this regular expression matches: [a-z]+",
            }
        },
        "required": ["input"],
        "additionalProperties": False,
    }


@ENDPOINTS
@pytest.mark.parametrize("fields", [{}, {"format": None}, {"format": {"type": "text"}}])
def test_without_a_grammar_any_text_will_do(endpoint: Endpoint, fields: dict[str, Any]) -> None:
    [run] = conversation(endpoint, tools=[{"type": "custom", "name": "run", **fields}]).tools

    assert (run.is_custom, run.strict, run.input_grammar) == (True, None, None)


def test_the_model_is_shown_a_lark_grammar() -> None:
    lark = {"type": "grammar", "syntax": "lark", "definition": 'start: "a"'}
    tools = [{"type": "custom", "name": "run", "format": lark}]

    [run] = conversation(Endpoint.RESPONSES, tools=tools).tools

    assert run.parameters is not None
    shown = run.parameters["properties"]["input"]["description"]
    assert shown == 'Plain text that fits this Lark grammar:\nstart: "a"'


@ENDPOINTS
@pytest.mark.parametrize(
    "choice", [{"type": "custom", "custom": {"name": "run"}}, {"type": "custom", "name": "run"}]
)
def test_a_custom_tool_can_be_demanded(endpoint: Endpoint, choice: dict[str, Any]) -> None:
    tools = [flat("a"), {"type": "custom", "custom": NESTED_RUN}]

    assert conversation(endpoint, tools=tools, tool_choice=choice).tool_choice == ToolChoice(
        ToolMode.NAMED, "run"
    )
    members = {"mode": "auto", "tools": [choice, flat("a")]}
    allowed = {"type": "allowed_tools", "allowed_tools": members}
    assert conversation(endpoint, tools=tools, tool_choice=allowed).tool_choice == ToolChoice(
        allowed=("run", "a")
    )


def test_a_response_repeats_custom_tools_in_their_flat_form() -> None:
    run = {"type": "custom", "name": "run"}
    members = {"mode": "auto", "tools": [run, flat("a")]}
    asked = exchange(
        Endpoint.RESPONSES,
        tools=[
            flat("a"),
            {"type": "custom", "custom": NESTED_RUN},
            {"type": "custom", "name": "free"},
        ],
        tool_choice={"type": "allowed_tools", **members},
    )

    answer = answered(asked, PLAIN)

    assert answer["tools"][1:] == [
        {"type": "custom", **FLAT_RUN},
        {"type": "custom", "name": "free", "description": None, "format": {"type": "text"}},
    ]
    assert answer["tool_choice"] == {"type": "allowed_tools", **members}


def test_a_replayed_call_of_a_custom_tool_is_one_of_its_function() -> None:
    custom = {"name": "run", "input": 'say "é"\n'}
    messages = [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "custom", "custom": custom},
                {"id": "c2", "type": "function", "function": {"name": "a"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "4"},
    ]
    items = [
        {
            "type": "custom_tool_call",
            "id": "ctc_1",
            "call_id": "c1",
            "status": "completed",
            **custom,
        },
        {"type": "function_call", "call_id": "c2", "name": "a", "arguments": "{}"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "4"},
    ]

    told = conversation(Endpoint.CHAT, messages=messages).messages

    calls = (ToolCall("c1", "run", '{"input":"say \\"é\\"\\n"}'), ToolCall("c2", "a", "{}"))
    assert told[0].tool_calls == calls
    assert conversation(Endpoint.RESPONSES, input=items).messages == told
