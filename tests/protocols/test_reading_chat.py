"""The GenerationRequest of a chat body."""

from functools import partial
from typing import Any

from tests.tables import table
from vinery_serving.core.dialects import V1
from vinery_serving.core.request import (
    Conversation,
    Endpoint,
    Message,
    Role,
    Sampling,
    Stopping,
    TextPart,
    ToolCall,
)

from .exchanges import PLAIN, answered, chat, conversation_of, exchange

WEATHER = {"name": "get_weather", "description": "Now.", "parameters": {"type": "object"}}
NESTED = {"type": "function", "function": WEATHER}

conversation = partial(conversation_of, Endpoint.CHAT)


def message(role: str = "assistant", content: Any = "a", **fields: Any) -> Message:
    return conversation(messages=[{"role": role, "content": content, **fields}]).messages[0]


def assistant(*texts: str, **fields: Any) -> Message:
    return Message(Role.ASSISTANT, tuple(map(TextPart, texts)), **fields)


def test_a_minimal_request_has_only_defaults_and_unknown_fields_are_accepted() -> None:
    request = chat()

    assert request.model is None
    assert request.sampling == Sampling()
    assert request.stopping == Stopping()
    assert request.grammar is None
    assert request.dialect is V1
    assert (request.n, request.is_streamed, request.wants_progress) == (1, False, False)
    assert request.prompt == Conversation((Message(Role.USER, (TextPart("Hi"),)),))

    part = {"type": "text", "text": "Hi", "opts": {}}
    unknown = chat(
        messages=[{"role": "user", "id": 1, "content": [part]}],
        tools=[{"type": "function", "x": 1, "function": {**WEATHER, "x": 1}}],
        frobnicate=[[]],
    )
    assert unknown.prompt == conversation(tools=[NESTED])


def test_metadata_of_any_type_is_repeated_as_text() -> None:
    returned = exchange(Endpoint.CHAT, metadata={"id": "a", "try": 2, "debug": True, "tags": ["x"]})

    metadata = {"id": "a", "try": "2", "debug": "true", "tags": '["x"]'}
    assert answered(returned, PLAIN)["metadata"] == metadata


@table("role", ["system", "developer", "user", "assistant"])
@table("kind", ["text", "input_text", "output_text"])
def test_any_role_may_send_text_parts(role: str, kind: str) -> None:
    parts = [{"type": kind, "text": "a"}, {"type": "refusal", "refusal": "b"}]

    assert message(role, parts) == Message(Role(role), (TextPart("a"), TextPart("b")))


CALLS = [
    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
    {"id": "c2", "type": "function", "function": {"name": "g", "arguments": {"b": 2}}},
    {"id": "c3", "function": {"name": "h"}},
    {"id": "c4", "type": "custom", "custom": {"name": "run", "input": "é"}},
]
CALLED = (
    *(ToolCall("c1", "f", '{"a":1}'), ToolCall("c2", "g", '{"b":2}'), ToolCall("c3", "h", "{}")),
    ToolCall("c4", "run", '{"input":"é"}'),
)


@table(
    "fields, turn",
    [
        ({"name": "bob"}, assistant("a", name="bob")),
        ({"role": "user", "name": "bob"}, Message(Role.USER, (TextPart("a"),), name="bob")),
        ({"tool_calls": []}, assistant("a")),
        ({"content": None, "tool_calls": CALLS}, assistant(tool_calls=CALLED)),
        ({"content": None}, assistant()),
        ({"content": None, "refusal": "No."}, assistant("No.")),
        ({"reasoning": "Hm"}, assistant("a", reasoning="Hm")),
        ({"reasoning_content": "Hm"}, assistant("a", reasoning="Hm")),
        (
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "4"}]},
            Message(Role.TOOL, (TextPart("4"),), tool_call_id="c1"),
        ),
    ],
)
def test_a_turn_is_read_with_all_its_members(fields: dict[str, Any], turn: Message) -> None:
    assert message(**fields) == turn


def test_the_content_of_the_assistant_may_be_missing() -> None:
    assert conversation(messages=[{"role": "assistant"}]).messages == (assistant(),)


def test_the_deprecated_function_role_answers_by_the_name_of_the_function() -> None:
    call = {"role": "assistant", "function_call": {"name": "f", "arguments": ""}}

    turns = conversation(messages=[call, {"role": "function", "name": "f", "content": "4"}])

    assert turns.messages == (
        assistant(tool_calls=(ToolCall("f", "f", "{}"),)),
        Message(Role.TOOL, (TextPart("4"),), name="f", tool_call_id="f"),
    )


def test_system_messages_stay_where_they_are() -> None:
    roles = ["system", "developer", "user", "system"]

    turns = conversation(messages=[{"role": role, "content": role} for role in roles]).messages

    assert [(turn.role.value, turn.text) for turn in turns] == [(role, role) for role in roles]
