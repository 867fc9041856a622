"""The GenerationRequest of a Responses body."""

import json
from functools import partial
from typing import Any

import pytest

from tests.results import build_result
from tests.tables import table
from vinery_serving.core import request as req
from vinery_serving.core.dialects import V1, V3
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.protocols.responses.exchange import parse_count

from . import exchanges

USER = req.Message(req.Role.USER, (req.TextPart("Hi"),))
HI = {"role": "user", "content": "Hi"}
OBJECT = '{"type":"object"}'

conversation = partial(exchanges.conversation_of, req.Endpoint.RESPONSES)


def turns(*items: Any) -> tuple[req.Message, ...]:
    return conversation(input=list(items)).messages


def assistant(text: str, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **fields}


def call(call_id: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}"}


def reason(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}


def test_a_string_is_a_message_of_the_user_after_the_instructions() -> None:
    system = req.Message(req.Role.SYSTEM, (req.TextPart("Be brief."),))

    assert conversation(input="Hi").messages == (USER,)
    assert conversation(instructions="Be brief.", input="Hi").messages == (system, USER)


def test_reasoning_is_packed_on_request_and_unpacked_again() -> None:
    with_reasoning = exchanges.exchange(
        req.Endpoint.RESPONSES, include=["reasoning.encrypted_content"]
    )
    packed, *_ = exchanges.answered(with_reasoning, exchanges.WITH_REASONING)["output"]
    bare, *_ = exchanges.answered(
        exchanges.exchange(req.Endpoint.RESPONSES), exchanges.WITH_REASONING
    )["output"]

    sent = {"type": "reasoning", "encrypted_content": packed["encrypted_content"], "summary": []}
    (turn,) = turns(sent)

    assert turn.reasoning == build_result(exchanges.WITH_REASONING).choices[0].reasoning
    assert bare["encrypted_content"] is None


def test_current_turn_keeps_only_the_latest_reasoning() -> None:
    items = [HI, reason("A"), assistant("One"), reason("B"), HI, reason("C"), call("a")]

    def kept(context: str) -> list[str | None]:
        messages = conversation(input=items, reasoning={"context": context}).messages
        return [turn.reasoning for turn in messages]

    assert kept("current_turn") == [None, None, None, "C"]
    assert kept("all_turns") == kept("auto") == [None, "A", "B", None, "C"]


@table("events", [exchanges.PLAIN, exchanges.TWO_CALLS])
def test_an_answer_can_be_sent_back_as_input(events: Any) -> None:
    answer = exchanges.answered(exchanges.exchange(req.Endpoint.RESPONSES), events)

    (turn,) = turns(*answer["output"])

    choice = build_result(events).choices[0]
    assert (turn.text, turn.tool_calls) == (choice.text, choice.tool_calls)


def test_responses_read_response_format_on_v3() -> None:
    wanted = {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}

    responses = exchanges.exchange(req.Endpoint.RESPONSES, V3, response_format=wanted)

    assert responses.request.grammar == req.Grammar(
        req.GrammarKind.JSON_SCHEMA, OBJECT, "response_format.json_schema.schema"
    )
    echoed = exchanges.answered(responses, exchanges.PLAIN)["text"]["format"]
    shown = (echoed["type"], echoed["name"], echoed["schema"])
    assert shown == ("json_schema", "response", {"type": "object"})


def test_what_codex_sends_is_accepted() -> None:
    schema = {"type": "object", "properties": {}}
    request = exchanges.response(
        model="m",
        instructions="You are a coding agent.",
        store=False,
        stream=True,
        include=["reasoning.encrypted_content"],
        prompt_cache_key="k",
        parallel_tool_calls=False,
        reasoning={"effort": "medium", "summary": "auto", "context": "all_turns"},
        tools=[
            {"type": "function", "name": "shell", "strict": False, "parameters": schema},
            {"type": "namespace", "name": "ns", "description": "d", "tools": []},
            {"type": "web_search"},
        ],
        tool_choice="auto",
        truncation="disabled",
    )

    assert request.is_streamed
    assert isinstance(request.prompt, req.Conversation)
    assert [tool.name for tool in request.prompt.tools] == ["shell"]


def test_a_prompt_can_be_counted_without_input_but_no_body_without_a_prompt() -> None:
    body = json.dumps({"instructions": "Be brief.", "truncation": "auto"}).encode()

    request = parse_count(body, V1)

    assert isinstance(request.prompt, req.Conversation)
    assert request.prompt.messages == (req.Message(req.Role.SYSTEM, (req.TextPart("Be brief."),)),)
    for fields, param in (({}, "input"), ({"input": "Hi", "personality": "a"}, "personality")):
        with pytest.raises(InvalidRequest) as caught:
            parse_count(json.dumps(fields).encode(), V1)
        assert caught.value.param == param
