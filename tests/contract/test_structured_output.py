"""Structured output on all endpoints and both trees: OpenAI's helpers, the names of vLLM,
FastDeploy and OVMS, and refused formats."""

from __future__ import annotations

import json
from enum import Enum
from typing import Any, Literal

import httpx
import openai
from pydantic import BaseModel, Field

from tests.tables import table

from .tiny_chat import MODEL, WEATHER, refusal, text_of

QUESTION = "Tell me about Alice as JSON."
ENDPOINTS: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 300},
    "completions": {"prompt": QUESTION, "max_tokens": 300},
    "responses": {"input": QUESTION, "max_output_tokens": 300},
}
ASKED: Any = {"model": MODEL, "messages": [{"role": "user", "content": QUESTION}]}


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(ge=1, le=9)


class Dog(BaseModel):
    kind: Literal["dog"]
    is_good: bool


class Person(BaseModel):
    name: str
    age: int


class Owner(BaseModel):
    """Constraints with bounds, so that the small model finishes each answer."""

    color: Color
    pets: list[Cat | Dog] = Field(max_length=2)
    friend: Owner | None
    size: float | None = Field(ge=0, le=2)
    code: str = Field(pattern="^[A-Z]{2}-[0-9]{2}$")
    flags: tuple[bool, bool]


# -- OpenAI's helpers -----------------------------------------------------------------------


@table("temperature", [0, 1])
def test_chat_parses_nested_models(client: openai.OpenAI, temperature: float) -> None:
    answer = client.chat.completions.parse(
        **ASKED, response_format=Owner, temperature=temperature, seed=5
    )

    assert isinstance(answer.choices[0].message.parsed, Owner)


BOB = "Give me JSON for a person named Bob who is 42 years old."


def test_chat_streams_a_model_and_parses_tools_of_models(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(**ASKED, response_format=Owner) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()

    assert "content.delta" in kinds
    assert kinds[-1] in ("content.done", "chunk")
    assert isinstance(final.choices[0].message.parsed, Owner)

    tools = [openai.pydantic_function_tool(Dog, name="get_dog")]
    one: Any = {"tool_choice": "required", "parallel_tool_calls": False}
    answer = client.chat.completions.parse(**ASKED, tools=tools, **one)

    [call] = answer.choices[0].message.tool_calls or []
    assert isinstance(call.function.parsed_arguments, Dog)


def test_responses_parse_nested_models_and_stream_them(client: openai.OpenAI) -> None:
    answer = client.responses.parse(model=MODEL, input=QUESTION, text_format=Owner)

    assert isinstance(answer.output_parsed, Owner)

    with client.responses.stream(model=MODEL, input=QUESTION, text_format=Owner) as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()

    assert isinstance(final.output_parsed, Owner)
    assert final.output_text == "".join(deltas)


def test_reasoning_comes_before_the_constrained_answer(client: openai.OpenAI) -> None:
    thinks = {"chat_template_kwargs": {"enable_thinking": True}}
    answer = client.chat.completions.parse(**ASKED, response_format=Owner, extra_body=thinks)

    message = answer.choices[0].message
    assert isinstance(message.parsed, Owner)
    assert (message.model_extra or {})["reasoning_content"]


def with_tools(client: openai.OpenAI, question: str, *, thinks: bool) -> Any:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": question}],
        tools=[WEATHER],
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "person", "schema": Person.model_json_schema()},
        },
        extra_body={"chat_template_kwargs": {"enable_thinking": thinks}},
    )
    return answer.choices[0]


@table("thinks", [False, True])
def test_tools_may_be_called_instead_of_an_answer(client: openai.OpenAI, thinks: bool) -> None:
    called = with_tools(client, "What is the weather in Paris and in London?", thinks=thinks)

    assert called.finish_reason == "tool_calls"
    cities = [json.loads(call.function.arguments)["city"] for call in called.message.tool_calls]
    assert cities == ["Paris", "London"]
    assert not called.message.content


def test_an_answer_beside_tools_fits_its_format(client: openai.OpenAI) -> None:
    returned = with_tools(client, BOB, thinks=False)

    assert returned.finish_reason == "stop"
    assert returned.message.tool_calls is None
    assert json.loads(returned.message.content) == {"name": "Bob", "age": 42}


@table("endpoint", ENDPOINTS)
@table("wanted", [{"guided_choice": ["yes", "no"]}, {"guided_regex": "yes|no"}])
def test_a_constraint_holds_on_every_endpoint(
    raw: httpx.Client, endpoint: str, wanted: dict[str, Any]
) -> None:
    reply = raw.post(f"/v1/{endpoint}", json={"model": MODEL, **ENDPOINTS[endpoint], **wanted})

    assert text_of(reply.raise_for_status().json()) in ("yes", "no")


# -- Refused formats --------------------------------------------------------------------------

ENDLESS = "root ::= " + "((([ab]{1,300} [c]{1,300}){1,300} | [d]){1,300})" * 8


@table("endpoint", ENDPOINTS)
def test_a_format_that_cannot_be_compiled_is_refused_first(
    raw: httpx.Client, tree: str, endpoint: str
) -> None:
    # The error has a status, also for streams.
    asked = {**ENDPOINTS[endpoint], "stream": True, "guided_grammar": ENDLESS}
    error = refusal(raw, f"/{tree}/{endpoint}", **asked)

    assert (error["param"], error["type"]) == ("guided_grammar", "invalid_request_error")
