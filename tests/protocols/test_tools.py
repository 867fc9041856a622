"""The tools of a request, and the choice among them."""

import json
from typing import Any

from openai.types.responses import Response

from tests.tables import table
from vinery_serving.core import events as ev
from vinery_serving.core import request

from .clients import response_answer
from .exchanges import PLAIN, TWO_CALLS, answered, conversation_of, ended, exchange, streamed

TOOLS = [{"type": "function", "function": {"name": name}} for name in "abc"]


def nested(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def flat(name: str) -> dict[str, Any]:
    return {"type": "function", "name": name}


# -- Custom tools ---------------------------------------------------------------------------

REGEX = {"syntax": "regex", "definition": "[a-z]+"}
NESTED_RUN = {"name": "run", "description": "Run", "format": {"type": "grammar", "grammar": REGEX}}
FLAT_RUN = {"name": "run", "description": "Run", "format": {"type": "grammar", **REGEX}}


def test_a_response_repeats_the_choice_and_custom_tools_in_their_flat_form() -> None:
    demanded = {"mode": "required", "tools": [nested("a")]}
    demand = {"type": "allowed_tools", "allowed_tools": demanded}
    asked = exchange(request.Endpoint.RESPONSES, tools=TOOLS, tool_choice=demand)

    repeated = {"type": "allowed_tools", "mode": "required", "tools": [flat("a")]}
    assert answered(asked, PLAIN)["tool_choice"] == repeated

    run = {"type": "custom", "name": "run"}
    members = {"mode": "auto", "tools": [run, flat("a")]}
    free = {"type": "custom", "name": "free"}
    tools = [flat("a"), {"type": "custom", "custom": NESTED_RUN}, free]
    choice = {"type": "allowed_tools", **members}

    answer = answered(exchange(request.Endpoint.RESPONSES, tools=tools, tool_choice=choice), PLAIN)

    whole = {**free, "description": None, "format": {"type": "text"}}
    assert answer["tools"][1:] == [{"type": "custom", **FLAT_RUN}, whole]
    assert answer["tool_choice"] == choice


# -- Namespaces -----------------------------------------------------------------------------

BROWSER: dict[str, Any] = {
    "type": "namespace",
    "name": "mcp__browser__",
    "description": "A browser.",
    "tools": [
        {"type": "function", "name": "open", "description": "Open a page"},
        {"type": "web_search"},
        {"type": "custom", "name": "type", "format": {"type": "grammar", **REGEX}},
    ],
}
CRM = {"type": "namespace", "name": "crm", "tools": [flat("open"), flat("close")]}
GROUPS = [flat("a"), BROWSER, CRM]


@table(
    "named, meant",
    [
        ({"type": "function", "name": "a"}, ("a",)),
        ({"type": "function", "name": "crm__open"}, ("crm__open",)),
        ({"type": "function", "name": "close"}, ("crm__close",)),
        ({"type": "custom", "name": "type"}, ("mcp__browser__type",)),
        ({"type": "namespace", "name": "crm"}, ("crm__open", "crm__close")),
    ],
)
def test_a_choice_finds_tools_in_namespaces(named: dict[str, Any], meant: tuple[str, ...]) -> None:
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [named]}

    asked = exchange(request.Endpoint.RESPONSES, tools=GROUPS, tool_choice=allowed)

    assert isinstance(asked.request.prompt, request.Conversation)
    assert asked.request.prompt.tool_choice == request.ToolChoice(allowed=meant)
    assert answered(asked, PLAIN)["tool_choice"] == allowed
    if named["type"] != "namespace":
        demanded = conversation_of(request.Endpoint.RESPONSES, tools=GROUPS, tool_choice=named)
        assert demanded.tool_choice == request.ToolChoice(request.ToolMode.NAMED, meant[0])


def test_a_call_in_a_namespace_has_both_names() -> None:
    asked = exchange(request.Endpoint.RESPONSES, tools=GROUPS)
    events = ended(
        ev.ToolCallStarted(0, 0, "call_a", "mcp__browser__type", is_custom=True),
        ev.ToolCallDelta(0, 0, "x", is_custom=True),
        ev.ToolCallStarted(0, 1, "call_b", "crm__open"),
        ev.ToolCallDelta(0, 1, "{}"),
        ev.ToolCallStarted(0, 2, "call_c", "a"),
        reason=ev.FinishReason.TOOL_CALLS,
    )

    answer = answered(asked, events)

    assert [(item["name"], item.get("namespace")) for item in answer["output"]] == [
        ("type", "mcp__browser__"),
        ("open", "crm"),
        ("a", None),
    ]
    assert response_answer(streamed(asked, events)) == answer
    Response.model_validate_json(json.dumps(answer), strict=True)


def test_a_response_repeats_namespaces_and_a_replayed_call_has_its_qualified_name() -> None:
    [function, browser, crm] = answered(exchange(request.Endpoint.RESPONSES, tools=GROUPS), PLAIN)[
        "tools"
    ]

    assert function["type"] == "function"
    assert (browser["type"], browser["description"]) == ("namespace", "A browser.")
    assert [tool["name"] for tool in browser["tools"]] == ["open", "type"]
    assert browser["tools"][0]["description"] == "Open a page"
    assert (crm["name"], crm["description"]) == ("crm", "")

    typing = {"namespace": "mcp__browser__", "call_id": "2", "name": "type", "input": "x"}
    items = [
        {"type": "function_call", "namespace": "crm", "call_id": "1", "name": "open"},
        {"type": "custom_tool_call", **typing},
    ]

    [turn] = conversation_of(request.Endpoint.RESPONSES, input=items, tools=GROUPS).messages

    assert [call.name for call in turn.tool_calls] == ["crm__open", "mcp__browser__type"]


# -- The deprecated form: `functions` in the request, one `function_call` in the answer --------

FUNCTIONS = [{"name": "get_weather"}, {"name": "get_time"}]


def deprecated(**fields: Any) -> Any:
    return exchange(request.Endpoint.CHAT, functions=FUNCTIONS, **fields)


def test_the_answer_has_one_call_without_an_id_or_text() -> None:
    [choice] = answered(deprecated(), TWO_CALLS)["choices"]

    call = {"name": "get_weather", "arguments": '{"city":"Oslo"}'}
    assert choice["message"]["function_call"] == call
    assert choice["message"]["content"] is None
    assert "tool_calls" not in choice["message"]
    assert choice["finish_reason"] == "function_call"
    assert answered(deprecated(), PLAIN) == answered(exchange(request.Endpoint.CHAT), PLAIN)
