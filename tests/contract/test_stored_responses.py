"""Stored responses through openai-python, with strict response validation."""

from typing import Any

import openai
import pytest

from .tiny_chat import CAPITAL, GET_WEATHER, MODEL, PARIS

WEATHER: Any = {"type": "function", "strict": False, **GET_WEATHER}
IN_PARIS: Any = {"role": "user", "content": "What is the weather in Paris?"}


def respond(client: openai.OpenAI, input: Any = CAPITAL, **fields: Any) -> Any:
    return client.responses.create(model=MODEL, input=input, **fields)


def test_a_response_is_found_and_deleted_as_it_was_answered(v1: openai.OpenAI) -> None:
    made = respond(v1, metadata={"a": "b"})

    assert made.store is True
    assert v1.responses.retrieve(made.id) == made
    v1.responses.delete(made.id)
    for ask in (v1.responses.retrieve, v1.responses.delete, v1.responses.input_items.list):
        with pytest.raises(openai.NotFoundError, match=f"Response with id '{made.id}' not found"):
            ask(made.id)
    with pytest.raises(openai.BadRequestError, match="not found") as refused:
        respond(v1, previous_response_id=made.id)
    assert refused.value.code == "previous_response_not_found"
    assert refused.value.param == "previous_response_id"


def test_an_id_of_something_else_is_refused_with_what_ids_begin_with(v1: openai.OpenAI) -> None:
    made = respond(v1)
    ask = v1.responses
    for name, asks in (
        ("response_id", (ask.retrieve, ask.delete, ask.cancel, ask.input_items.list)),
        ("previous_response_id", (lambda id_: respond(v1, previous_response_id=id_),)),
    ):
        for each in asks:
            with pytest.raises(openai.BadRequestError, match="begins with `resp_`") as refused:
                each(made.output[0].id)
            assert (refused.value.param, refused.value.code) == (name, "invalid_value")


def test_a_stream_can_be_continued_as_soon_as_it_ends(v1: openai.OpenAI) -> None:
    with v1.responses.stream(model=MODEL, input=CAPITAL) as stream:
        for event in stream:
            if event.type == "response.completed":
                first = event.response
                assert v1.responses.retrieve(first.id).output_text == PARIS
    second = respond(v1, "And again?", previous_response_id=first.id)

    assert second.previous_response_id == first.id
    assert second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens
    whole = respond(
        v1,
        [
            {"role": "user", "content": CAPITAL},
            {"role": "assistant", "content": PARIS},
            {"role": "user", "content": "And again?"},
        ],
        store=False,
    )
    assert whole.store is False
    assert whole.usage.input_tokens == second.usage.input_tokens
    listed = v1.responses.input_items.list(second.id, order="asc", limit=2)
    texts = [item.content[0].text for item in listed]  # type: ignore[union-attr]
    assert texts == [CAPITAL, PARIS, "And again?"]


def test_a_call_and_its_output_are_joined_by_reference(v1: openai.OpenAI) -> None:
    asked = respond(v1, [IN_PARIS], tools=[WEATHER])
    (call,) = [item for item in asked.output if item.type == "function_call"]
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "Sunny."}

    referring = respond(
        v1, [IN_PARIS, {"type": "item_reference", "id": call.id}, output], tools=[WEATHER]
    )
    continuing = respond(v1, [output], previous_response_id=asked.id, tools=[WEATHER])

    assert referring.usage.input_tokens == continuing.usage.input_tokens
    with pytest.raises(openai.BadRequestError, match="No tool output found for function call"):
        respond(v1, "And?", previous_response_id=asked.id)
    with pytest.raises(openai.BadRequestError, match="No tool call found for function call"):
        respond(v1, [{**output, "call_id": "call_0"}], previous_response_id=continuing.id)
    with pytest.raises(openai.BadRequestError, match="not persisted when `store` is set to false"):
        respond(v1, [IN_PARIS, {"type": "item_reference", "id": "msg_0"}])
