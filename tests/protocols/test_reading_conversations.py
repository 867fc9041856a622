"""Turns, items and messages become the messages of a prompt, as `golden/reading.jsonl` lists them,
and a chat becomes a GenerationRequest."""

import json
from functools import partial
from pathlib import Path
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
)

from .exchanges import PLAIN, answered, chat, conversation_of, exchange

WEATHER = {"name": "get_weather", "description": "Now.", "parameters": {"type": "object"}}
NESTED = {"type": "function", "function": WEATHER}

conversation = partial(conversation_of, Endpoint.CHAT)

READING = Path(__file__).parents[1] / "golden" / "reading.jsonl"


def shown(message: Message) -> dict[str, Any]:
    """What a row has of a message of texts and calls."""
    assert all(isinstance(part, TextPart) for part in message.content)
    members = {
        "role": message.role.value,
        "texts": [part.text for part in message.texts],
        **{name: getattr(message, name) for name in ("name", "reasoning", "tool_call_id")},
        "calls": [[call.id, call.name, call.arguments] for call in message.tool_calls],
    }
    return {name: value for name, value in members.items() if value not in (None, [])}


@table("row", [json.loads(line) for line in READING.read_text(encoding="utf-8").splitlines()])
def test_what_was_said_becomes_the_messages_of_a_prompt(row: dict[str, Any]) -> None:
    said = conversation_of(Endpoint(row["endpoint"]), **row["fields"]).messages

    assert [shown(message) for message in said] == row["messages"]


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
