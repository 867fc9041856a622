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


def output(call_id: str, result: Any = "4") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": result}


def reason(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}


def called(*ids: str, text: str = "", reasoning: str | None = None) -> req.Message:
    """A turn of the assistant. `|` stands between the parts of its text."""
    parts = tuple(req.TextPart(part) for part in text.split("|") if part)
    calls = tuple(req.ToolCall(id_, "f", "{}") for id_ in ids)
    return req.Message(req.Role.ASSISTANT, parts, reasoning=reasoning, tool_calls=calls)


def result(call_id: str, *texts: str) -> req.Message:
    parts = tuple(map(req.TextPart, texts or ("4",)))
    return req.Message(req.Role.TOOL, parts, tool_call_id=call_id)


def test_a_string_is_a_message_of_the_user_after_the_instructions() -> None:
    system = req.Message(req.Role.SYSTEM, (req.TextPart("Be brief."),))

    assert conversation(input="Hi").messages == (USER,)
    assert conversation(instructions="Be brief.", input="Hi").messages == (system, USER)


TYPED = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
REPLAYED = {
    "type": "message",
    "id": "msg_1",
    "status": "completed",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Yes", "annotations": []}],
}
ONCE = [HI, call("a"), output("a"), assistant("Done.")]
PACKED_EMPTY = {"type": "reasoning", "encrypted_content": "vinery.1.", "summary": []}
LONG_REASON = {**reason("short"), "content": [{"type": "reasoning_text", "text": "long"}]}
SEARCH = {"type": "web_search_call", "id": "w", "action": {}}
SEARCHED = req.Message(
    req.Role.ASSISTANT,
    tool_calls=(req.ToolCall("a", "f", "{}"), req.ToolCall("w", "web_search", "{}")),
)
IN_PARTS = [{"type": "input_text", "text": "4"}, {"type": "input_text", "text": "2"}]


@table(
    "items, messages",
    [
        # Messages come in the easy and in the typed form.
        ([HI, TYPED, REPLAYED], [USER, USER, called(text="Yes")]),
        # All that the assistant sends beside open calls is one turn.
        (
            [assistant("Let me see."), call("a"), call("b"), output("a"), output("b")],
            [called("a", "b", text="Let me see."), result("a"), result("b")],
        ),
        (
            [call("a"), assistant("One moment."), output("a")],
            [called("a", text="One moment."), result("a")],
        ),
        (
            [assistant("Hm."), call("a"), assistant("Wait."), call("b"), output("b"), output("a")],
            [called("a", "b", text="Hm.|Wait."), result("b"), result("a")],
        ),
        (
            [reason("A"), call("a"), reason("B"), assistant("Wait."), output("a")],
            [called("a", text="Wait.", reasoning="A\nB"), result("a")],
        ),
        (
            [call("a"), reason("B"), call("b"), output("a"), output("b")],
            [called("a", "b", reasoning="B"), result("a"), result("b")],
        ),
        ([call("a"), reason("B"), output("a")], [called("a", reasoning="B"), result("a")]),
        ([call("a"), assistant("Wait.")], [called("a", text="Wait.")]),
        # Results follow their calls.
        (
            [call("a"), call("b"), output("b"), assistant("Next."), output("a")],
            [called("a", "b"), result("b"), result("a"), called(text="Next.")],
        ),
        ([call("a"), HI, output("a")], [called("a"), result("a"), USER]),
        (
            [call("a"), SEARCH, call("b"), output("a"), output("b")],
            [
                SEARCHED,
                req.Message(req.Role.TOOL, (req.TextPart("completed"),), tool_call_id="w"),
                result("a"),
                called("b"),
                result("b"),
            ],
        ),
        # A call with the id of an earlier one has its own result.
        ([*ONCE, *ONCE], [USER, called("a"), result("a"), called(text="Done.")] * 2),
        # A result without a call stays in place.
        (
            [output("x"), assistant("Done."), output("y")],
            [result("x"), called(text="Done."), result("y")],
        ),
        # A call after a message of another role is a new assistant message.
        ([HI, call("a")], [USER, called("a")]),
        # A call without a call id has its item id.
        ([{"type": "function_call", "id": "fc_1", "name": "f", "arguments": ""}], [called("fc_1")]),
        # Reasoning belongs to the next assistant message, or becomes one.
        (
            [reason("A"), assistant("One"), reason("B"), call("a"), output("a")],
            [called(text="One", reasoning="A"), called("a", reasoning="B"), result("a")],
        ),
        ([reason("A"), HI], [called(reasoning="A"), USER]),
        # Reasoning of another server is skipped.
        ([call("a"), PACKED_EMPTY, call("b")], [called("a", "b")]),
        # Clients send an empty text or null where there is no encrypted content.
        *(
            (
                [{**LONG_REASON, "encrypted_content": absent}, assistant("x")],
                [called(text="x", reasoning="long")],
            )
            for absent in ("", None)
        ),
        # The content of reasoning is preferred to its summary.
        ([LONG_REASON, assistant("x")], [called(text="x", reasoning="long")]),
        # A function may answer in parts.
        ([output("a", IN_PARTS)], [result("a", "4", "2")]),
    ],
)
def test_items_become_turns(items: list[dict[str, Any]], messages: list[req.Message]) -> None:
    assert turns(*items) == tuple(messages)


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
