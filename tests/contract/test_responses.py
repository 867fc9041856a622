"""responses through openai-python, with strict response validation."""

import json
from typing import Any

import openai
import pytest

from .test_stored_responses import IN_PARIS, WEATHER, respond
from .tiny_chat import CAPITAL, CONTEXT, MODEL, PARIS, SUNNY, SUNNY_IN_PARIS


def streamed(client: openai.OpenAI, input: Any = CAPITAL, **fields: Any) -> tuple[set[str], Any]:
    """The types of the events, and the answer that the client's helper accumulates."""
    with client.responses.stream(model=MODEL, input=input, **fields) as stream:
        kinds = {event.type for event in stream}
        return kinds, stream.get_final_response()


def test_it_answers_a_plain_string_and_repeats_what_is_in_force(client: openai.OpenAI) -> None:
    response = respond(client)

    assert response.output_text == streamed(client)[1].output_text == PARIS
    assert response.status == "completed"
    assert response.usage.output_tokens > 5
    assert response.usage.input_tokens_details.cached_tokens >= 0
    assert response.completed_at >= response.created_at

    assert (response.reasoning.effort, response.reasoning.summary) == (None, None)
    assert (response.temperature, response.top_p, response.top_logprobs) == (0.0, 1.0, 0)
    calling = (response.tool_choice, response.tools, response.parallel_tool_calls)
    assert calling == ("auto", [], True)
    assert (response.truncation, response.background) == ("disabled", False)
    assert response.metadata == {}
    assert (response.text.format.type, response.text.verbosity) == ("text", "medium")


def test_a_tool_is_called_and_used_and_a_streamed_call_has_its_events(
    client: openai.OpenAI,
) -> None:
    [call] = respond(client, [IN_PARIS], tools=[WEATHER]).output
    assert call.type == "function_call"
    assert json.loads(call.arguments) == {"city": "Paris"}

    output = {"type": "function_call_output", "call_id": call.call_id, "output": SUNNY}
    turns = [IN_PARIS, call.model_dump(exclude_none=True), output]

    assert respond(client, turns, tools=[WEATHER]).output_text == SUNNY_IN_PARIS

    kinds, final = streamed(client, [IN_PARIS], tools=[WEATHER])

    arguments = "response.function_call_arguments"
    assert {f"{arguments}.delta", f"{arguments}.done"} <= kinds
    assert json.loads(final.output[0].arguments) == {"city": "Paris"}


@pytest.mark.parametrize(("tree", "reason"), [("v1", "max_output_tokens"), ("v3", "max_tokens")])
def test_an_answer_cut_by_its_limit_is_incomplete(
    client: openai.OpenAI, tree: str, reason: str
) -> None:
    if tree == "v3":
        client._strict_response_validation = False  # OVMS's word is not in OpenAI's enum
    response = respond(client, max_output_tokens=3)

    assert response.status == "incomplete"
    assert response.incomplete_details.reason == reason


LONG = "Tell me about the weather, the capital of France and the number forty. " * 20


def test_truncation_auto_answers_a_long_conversation(client: openai.OpenAI) -> None:
    history = [
        {"role": role, "content": f"{at}: {LONG}"}
        for at in range(20)
        for role in ("user", "assistant")
    ]
    question = {"role": "user", "content": CAPITAL}
    fields: Any = {"instructions": "You are a helpful assistant.", "max_output_tokens": 64}

    with pytest.raises(openai.BadRequestError) as refused:
        respond(client, [*history, question], **fields)
    response = respond(client, [*history, question], **fields, truncation="auto")

    assert refused.value.code == "context_length_exceeded"
    assert refused.value.param == "input"
    counted = client.responses.input_tokens.count(
        model=MODEL, instructions=fields["instructions"], input=[question]
    )
    assert counted.input_tokens < response.usage.input_tokens <= CONTEXT - 64


def test_counted_tokens_are_those_that_are_used(client: openai.OpenAI) -> None:
    asked: Any = {"instructions": "You are a helpful assistant.", "tools": [WEATHER]}

    counted = client.responses.input_tokens.count(model=MODEL, input=[IN_PARIS], **asked)

    assert counted.object == "response.input_tokens"
    assert counted.input_tokens == respond(client, [IN_PARIS], **asked).usage.input_tokens
    with pytest.raises(openai.NotFoundError):
        client.responses.input_tokens.count(model="unknown", input="Hi")
    with pytest.raises(openai.BadRequestError, match="`input` is required"):
        client.responses.input_tokens.count(model=MODEL)
