"""The GenerationRequest of a Responses body."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.results import build_result
from tests.tables import table
from vinery_serving.core.dialects import V1, V3
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.request import (
    Conversation,
    Effort,
    Endpoint,
    Grammar,
    GrammarKind,
    Message,
    Role,
    TextPart,
    Tool,
    ToolCall,
    ToolChoice,
    ToolMode,
)
from vinery_serving.protocols.responses.exchange import parse_count

from .exchanges import PLAIN, TWO_CALLS, WITH_REASONING, answered, exchange, response
from .items import assistant, conversation, turns

USER = Message(Role.USER, (TextPart("Hi"),))
SCHEMA = {"type": "object", "properties": {}}


def call(call_id: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}"}


def output(call_id: str, result: Any = "4") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": result}


def reasoning_item(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}


def test_a_string_is_a_message_of_the_user() -> None:
    assert conversation(input="Hi").messages == (USER,)


def test_instructions_lead_the_conversation() -> None:
    messages = conversation(instructions="Be brief.", input="Hi").messages

    assert messages == (Message(Role.SYSTEM, (TextPart("Be brief."),)), USER)


def test_messages_come_in_the_easy_and_in_the_typed_form() -> None:
    easy = {"role": "user", "content": "Hi"}
    typed = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
    replayed = {
        "type": "message",
        "id": "msg_1",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Yes", "annotations": []}],
    }

    assert turns(easy, typed, replayed) == (
        USER,
        USER,
        Message(Role.ASSISTANT, (TextPart("Yes"),)),
    )


def test_calls_join_the_assistant_message_before_them() -> None:
    assert turns(assistant("Let me see."), call("a"), call("b"), output("a"), output("b")) == (
        Message(
            Role.ASSISTANT,
            (TextPart("Let me see."),),
            tool_calls=(ToolCall("a", "f", "{}"), ToolCall("b", "f", "{}")),
        ),
        Message(Role.TOOL, (TextPart("4"),), tool_call_id="a"),
        Message(Role.TOOL, (TextPart("4"),), tool_call_id="b"),
    )


def called(*ids: str, text: str = "", reasoning: str | None = None) -> Message:
    parts = tuple(TextPart(part) for part in text.split("|") if part)
    calls = tuple(ToolCall(id_, "f", "{}") for id_ in ids)
    return Message(Role.ASSISTANT, parts, reasoning=reasoning, tool_calls=calls)


def result(call_id: str) -> Message:
    return Message(Role.TOOL, (TextPart("4"),), tool_call_id=call_id)


SEARCH = {"type": "web_search_call", "id": "w", "action": {}}


@table(
    "items, messages",
    [
        (
            [call("a"), assistant("One moment."), output("a")],
            [called("a", text="One moment."), result("a")],
        ),
        (
            [assistant("Hm."), call("a"), assistant("Wait."), call("b"), output("b"), output("a")],
            [called("a", "b", text="Hm.|Wait."), result("b"), result("a")],
        ),
        (
            [reasoning_item("A"), call("a"), reasoning_item("B"), assistant("Wait."), output("a")],
            [called("a", text="Wait.", reasoning="A\nB"), result("a")],
        ),
        (
            [call("a"), reasoning_item("B"), call("b"), output("a"), output("b")],
            [called("a", "b", reasoning="B"), result("a"), result("b")],
        ),
        (
            [call("a"), reasoning_item("B"), output("a")],
            [called("a", reasoning="B"), result("a")],
        ),
        ([call("a"), assistant("Wait.")], [called("a", text="Wait.")]),
    ],
)
def test_all_that_the_assistant_sends_beside_open_calls_is_one_turn(
    items: list[dict[str, Any]], messages: list[Message]
) -> None:
    assert turns(*items) == tuple(messages)


@table(
    "items, messages",
    [
        (
            [call("a"), call("b"), output("b"), assistant("Next."), output("a")],
            [called("a", "b"), result("b"), result("a"), called(text="Next.")],
        ),
        (
            [call("a"), {"role": "user", "content": "Hi"}, output("a")],
            [called("a"), result("a"), USER],
        ),
        (
            [call("a"), SEARCH, call("b"), output("a"), output("b")],
            [
                Message(
                    Role.ASSISTANT,
                    tool_calls=(ToolCall("a", "f", "{}"), ToolCall("w", "web_search", "{}")),
                ),
                Message(Role.TOOL, (TextPart("completed"),), tool_call_id="w"),
                result("a"),
                called("b"),
                result("b"),
            ],
        ),
    ],
)
def test_results_follow_their_calls(items: list[dict[str, Any]], messages: list[Message]) -> None:
    assert turns(*items) == tuple(messages)


def test_a_call_with_the_id_of_an_earlier_one_has_its_own_result() -> None:
    once = ({"role": "user", "content": "Hi"}, call("a"), output("a"), assistant("Done."))

    assert turns(*once, *once) == (USER, called("a"), result("a"), called(text="Done.")) * 2


def test_a_result_without_its_call_stays_where_it_is() -> None:
    assert turns(output("x"), assistant("Done."), output("y")) == (
        result("x"),
        called(text="Done."),
        result("y"),
    )


def test_a_call_after_a_message_of_another_role_is_a_new_assistant_message() -> None:
    user = {"role": "user", "content": "Hi"}

    assert turns(user, call("a")) == (
        USER,
        Message(Role.ASSISTANT, tool_calls=(ToolCall("a", "f", "{}"),)),
    )


def test_a_call_without_a_call_id_has_its_item_id() -> None:
    item = {"type": "function_call", "id": "fc_1", "name": "f", "arguments": ""}

    assert turns(item)[0].tool_calls == (ToolCall("fc_1", "f", "{}"),)


def test_reasoning_belongs_to_the_next_assistant_message() -> None:
    messages = turns(
        reasoning_item("A"), assistant("One"), reasoning_item("B"), call("a"), output("a")
    )

    assert [(turn.role, turn.reasoning) for turn in messages] == [
        (Role.ASSISTANT, "A"),
        (Role.ASSISTANT, "B"),
        (Role.TOOL, None),
    ]


def test_reasoning_without_a_message_after_it_becomes_a_message() -> None:
    user = {"role": "user", "content": "Hi"}

    assert turns(reasoning_item("A"), user) == (Message(Role.ASSISTANT, reasoning="A"), USER)


def test_reasoning_of_another_server_is_skipped() -> None:
    packed = {"type": "reasoning", "encrypted_content": "xyz", "summary": []}

    assert turns(call("a"), packed, call("b"))[0].tool_calls == (
        ToolCall("a", "f", "{}"),
        ToolCall("b", "f", "{}"),
    )


def test_reasoning_that_this_server_packed_is_unpacked() -> None:
    with_reasoning = exchange(Endpoint.RESPONSES, include=["reasoning.encrypted_content"])
    packed, *_ = answered(with_reasoning, WITH_REASONING)["output"]
    bare = {"type": "reasoning", "encrypted_content": packed["encrypted_content"], "summary": []}

    (turn,) = turns(bare)

    assert turn.reasoning == build_result(WITH_REASONING).choices[0].reasoning


def test_reasoning_is_packed_only_on_request() -> None:
    packed, *_ = answered(exchange(Endpoint.RESPONSES), WITH_REASONING)["output"]

    assert packed["encrypted_content"] is None


def test_current_turn_keeps_only_the_latest_reasoning() -> None:
    user = {"role": "user", "content": "Hi"}
    items = [
        user,
        reasoning_item("A"),
        assistant("One"),
        reasoning_item("B"),
        user,
        reasoning_item("C"),
        call("a"),
    ]

    def kept(context: str) -> list[str | None]:
        messages = conversation(input=items, reasoning={"context": context}).messages
        return [turn.reasoning for turn in messages]

    assert kept("current_turn") == [None, None, None, "C"]
    assert kept("all_turns") == kept("auto") == [None, "A", "B", None, "C"]


def test_truncation_auto_drops_the_oldest_messages() -> None:
    assert conversation(truncation="auto").drops_oldest
    assert not conversation(truncation="disabled").drops_oldest
    assert not conversation().drops_oldest


@table(
    "fields, num_top",
    [
        ({}, None),
        ({"top_logprobs": 0}, None),
        ({"logprobs": False}, None),
        ({"logprobs": True}, 0),
        ({"include": ["message.output_text.logprobs"]}, 0),
        ({"include": ["message.output_text.logprobs"], "top_logprobs": 3}, 3),
        ({"top_logprobs": 3}, 3),
    ],
)
def test_there_are_three_ways_to_ask_for_logprobs(
    fields: dict[str, Any], num_top: int | None
) -> None:
    assert response(**fields).logprobs.num_top == num_top


def test_n_is_read() -> None:
    assert response(n=3).num_choices == 3
    assert response(n=1) == response()


def test_the_content_of_reasoning_is_preferred_to_its_summary() -> None:
    item = {**reasoning_item("short"), "content": [{"type": "reasoning_text", "text": "long"}]}

    assert turns(item, assistant("x"))[0].reasoning == "long"


def test_a_function_may_answer_in_parts() -> None:
    parts = [{"type": "input_text", "text": "4"}, {"type": "input_text", "text": "2"}]

    assert turns(output("a", parts))[0].content == (TextPart("4"), TextPart("2"))


@table("events", [PLAIN, TWO_CALLS])
def test_an_answer_can_be_sent_back_as_input(events: Any) -> None:
    answer = answered(exchange(Endpoint.RESPONSES), events)

    (turn,) = turns(*answer["output"])

    choice = build_result(events).choices[0]
    assert (turn.text, turn.tool_calls) == (choice.text, choice.tool_calls)


def test_hosted_tools_are_left_out() -> None:
    tools = [
        {"type": "web_search", "filters": {}},
        {"type": "function", "name": "f", "strict": True},
        {"type": "mcp", "server_label": "x"},
        {"type": "function", "function": {"name": "g"}},
    ]

    assert conversation(tools=tools).tools == (Tool("f", strict=True), Tool("g"))


def test_a_tool_can_be_named_in_the_flat_form() -> None:
    prompt = conversation(
        tools=[{"type": "function", "name": "f"}],
        tool_choice={"type": "function", "name": "f"},
    )

    assert prompt.tool_choice == ToolChoice(ToolMode.NAMED, "f")


@table("effort", Effort)
def test_every_effort_reaches_the_template(effort: Effort) -> None:
    assert conversation(reasoning={"effort": effort.value}).rendering.effort is effort


def test_a_summary_alone_sets_no_effort() -> None:
    assert conversation(reasoning={"summary": "auto"}).rendering.effort is None


def test_a_text_format_is_a_grammar() -> None:
    text = {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}}

    assert response(text=text).grammar == Grammar(
        GrammarKind.JSON_SCHEMA, '{"type":"object"}', "text.format.schema"
    )


def test_responses_read_response_format_on_v3() -> None:
    wanted = {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}

    responses = exchange(Endpoint.RESPONSES, V3, response_format=wanted)

    assert responses.request.grammar == Grammar(
        GrammarKind.JSON_SCHEMA, '{"type":"object"}', "response_format.json_schema.schema"
    )
    echoed = answered(responses, PLAIN)["text"]["format"]
    assert (echoed["type"], echoed["name"], echoed["schema"]) == (
        "json_schema",
        "response",
        {"type": "object"},
    )


def test_both_format_fields_accept_plain_text() -> None:
    plain = {"type": "text"}

    assert response(V1, response_format=plain, text={"format": plain}).grammar is None


def test_the_limit_is_max_output_tokens() -> None:
    assert response(max_output_tokens=5).stopping.max_tokens == 5


def test_a_response_is_never_stored() -> None:
    assert answered(exchange(Endpoint.RESPONSES, store=True), PLAIN)["store"] is False


def test_what_codex_sends_is_accepted() -> None:
    request = response(
        model="m",
        instructions="You are a coding agent.",
        store=False,
        stream=True,
        include=["reasoning.encrypted_content"],
        prompt_cache_key="k",
        parallel_tool_calls=False,
        reasoning={"effort": "medium", "summary": "auto", "context": "all_turns"},
        tools=[
            {"type": "function", "name": "shell", "strict": False, "parameters": SCHEMA},
            {"type": "namespace", "name": "ns", "description": "d", "tools": []},
            {"type": "web_search"},
        ],
        tool_choice="auto",
        truncation="disabled",
    )

    assert request.is_streamed
    assert isinstance(request.prompt, Conversation)
    assert [tool.name for tool in request.prompt.tools] == ["shell"]


def test_a_prompt_can_be_counted_without_input() -> None:
    body = json.dumps({"instructions": "Be brief.", "truncation": "auto"}).encode()

    request = parse_count(body, V1)

    assert isinstance(request.prompt, Conversation)
    assert request.prompt.messages == (Message(Role.SYSTEM, (TextPart("Be brief."),)),)


@table(
    "fields, param",
    [({}, "input"), ({"input": "Hi", "personality": "friendly"}, "personality")],
)
def test_a_body_without_a_prompt_cannot_be_counted(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_count(json.dumps(fields).encode(), V1)

    assert caught.value.param == param
