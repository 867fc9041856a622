"""chat/completions through openai-python, with strict response validation."""

from __future__ import annotations

import json

import openai
import pytest
from pydantic import BaseModel

from tests.conftest import until_in_parts
from tests.contract.tiny_chat import MODEL, PARIS, QUESTION, WEATHER, WEATHER_QUESTION

pytestmark = pytest.mark.system


def test_it_answers_with_paris(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=QUESTION)

    assert answer.choices[0].message.content == PARIS
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == MODEL


def test_usage_counts_prompt_and_answer(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=QUESTION)

    usage = answer.usage
    assert usage is not None
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens > 10
    assert usage.completion_tokens > 5
    assert usage.prompt_tokens_details is not None
    assert 0 <= (usage.prompt_tokens_details.cached_tokens or 0) < usage.prompt_tokens
    assert usage.completion_tokens_details is not None
    assert usage.completion_tokens_details.reasoning_tokens == 0


def test_a_stream_has_many_chunks_and_adds_up_to_the_unary_text(client: openai.OpenAI) -> None:
    chunks = until_in_parts(
        lambda: client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "Count to 40."}], stream=True
        ),
        lambda chunk: chunk.choices[0].delta.content,
        at_least=5,
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)

    assert text == " ".join(str(number) for number in range(1, 41))
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert all(chunk.usage is None for chunk in chunks)


def test_a_stream_ends_with_usage_on_request(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model=MODEL,
            messages=QUESTION,
            stream=True,
            stream_options={"include_usage": True},
        )
    )

    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens > 5
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_the_streaming_helper_accumulates(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model=MODEL, messages=QUESTION) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()

    assert final.choices[0].message.content == PARIS


def test_it_remembers_over_turns(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": "My name is Alice."},
            {"role": "assistant", "content": "Nice to meet you, Alice!"},
            {"role": "user", "content": [{"type": "text", "text": "What is my name?"}]},
        ],
    )

    assert answer.choices[0].message.content == "Your name is Alice."


def test_max_tokens_cuts_with_length(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=3)
    newer = client.chat.completions.create(
        model=MODEL, messages=QUESTION, max_completion_tokens=2, max_tokens=9
    )

    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 3
    assert newer.usage is not None
    assert newer.usage.completion_tokens == 2


def test_a_stop_string_ends_the_answer(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "Count to 40."}],
        stop=[" 7"],
        extra_body={"include_stop_str_in_output": False},
    )

    assert answer.choices[0].message.content == "1 2 3 4 5 6"
    assert answer.choices[0].finish_reason == "stop"


def test_n_choices_come_in_order_of_their_indexes(client: openai.OpenAI) -> None:
    unary = client.chat.completions.create(model=MODEL, messages=QUESTION, n=3)
    with client.chat.completions.stream(model=MODEL, messages=QUESTION, n=2) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()

    assert [choice.index for choice in unary.choices] == [0, 1, 2]
    assert {choice.message.content for choice in unary.choices} == {PARIS}
    assert [choice.message.content for choice in final.choices] == [PARIS, PARIS]


def test_samples_share_their_prompt_and_its_cached_part(client: openai.OpenAI) -> None:
    for _ in range(2):
        answer = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "How are you today? " * 20}],
            n=20,
            max_tokens=1,
        )

    usage = answer.usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert 0 < (usage.prompt_tokens_details.cached_tokens or 0) < usage.prompt_tokens


def test_one_seed_gives_one_text(client: openai.OpenAI) -> None:
    def poem(seed: int) -> str | None:
        answer = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "Write a poem."}],
            temperature=1.9,
            seed=seed,
            max_tokens=40,
        )
        return answer.choices[0].message.content

    assert poem(3) == poem(3)
    assert poem(3) != poem(4)


def test_a_weather_tool_gets_the_city(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=WEATHER_QUESTION, tools=[WEATHER])

    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    assert choice.message.tool_calls is not None
    (call,) = choice.message.tool_calls
    assert call.type == "function"
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Paris"}


def test_a_streamed_tool_call_is_the_same(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model=MODEL, messages=WEATHER_QUESTION, tools=[WEATHER]
    ) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()

    assert final.choices[0].finish_reason == "tool_calls"
    calls = final.choices[0].message.tool_calls
    assert calls is not None
    assert [call.function.name for call in calls] == ["get_weather"]
    assert json.loads(calls[0].function.arguments) == {"city": "Paris"}


def test_the_output_of_a_tool_is_used(client: openai.OpenAI) -> None:
    first = client.chat.completions.create(model=MODEL, messages=WEATHER_QUESTION, tools=[WEATHER])
    message = first.choices[0].message
    assert message.tool_calls is not None
    second = client.chat.completions.create(
        model=MODEL,
        tools=[WEATHER],
        messages=[
            *WEATHER_QUESTION,
            message.model_dump(exclude_none=True),
            {
                "role": "tool",
                "tool_call_id": message.tool_calls[0].id,
                "content": '{"temperature": 21, "condition": "sunny"}',
            },
        ],
    )

    assert second.choices[0].message.content == "It is 21 degrees and sunny in Paris."


def test_two_cities_give_two_calls(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "What is the weather in Paris and in London?"}],
        tools=[WEATHER],
    )

    calls = answer.choices[0].message.tool_calls
    assert calls is not None
    cities = [json.loads(call.function.arguments)["city"] for call in calls]
    assert cities == ["Paris", "London"]
    assert len({call.id for call in calls}) == 2


def test_no_tool_is_called_when_none_may_be(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=WEATHER_QUESTION, tools=[WEATHER], tool_choice="none"
    )

    assert answer.choices[0].message.tool_calls is None
    assert answer.choices[0].finish_reason == "stop"


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "get_weather"}}]
)
def test_a_required_call_is_generated_for_any_question(
    client: openai.OpenAI, choice: object
) -> None:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "Hello!"}],
        tools=[WEATHER],
        tool_choice=choice,
        max_tokens=200,
    )

    calls = answer.choices[0].message.tool_calls
    assert calls
    assert calls[0].function.name == "get_weather"
    assert set(json.loads(calls[0].function.arguments)) == {"city"}


class Person(BaseModel):
    """The schema of the answer."""

    name: str
    age: int
    is_adult: bool


@pytest.mark.parametrize("question", ["Tell me about Alice.", "Hello!", "Return a person as JSON."])
def test_structured_output_is_parsed(client: openai.OpenAI, question: str) -> None:
    answer = client.chat.completions.parse(
        model=MODEL,
        messages=[{"role": "user", "content": question}],
        response_format=Person,
        temperature=0,
    )

    assert isinstance(answer.choices[0].message.parsed, Person)


def test_reasoning_is_split_from_the_answer(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "What is the capital of France?"}],
        extra_body={"chat_template_kwargs": {"enable_thinking": True}},
    )

    message = answer.choices[0].message
    assert message.content is not None
    assert "Paris" in message.content
    assert "<think>" not in message.content
    assert (message.model_extra or {})["reasoning_content"]
    assert (message.model_extra or {})["reasoning"]
    assert answer.usage is not None
    assert answer.usage.completion_tokens_details is not None
    assert (answer.usage.completion_tokens_details.reasoning_tokens or 0) > 0


def test_reasoning_effort_turns_thinking_on(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL, messages=QUESTION, reasoning_effort="low", stream=True
    )
    deltas = [chunk.choices[0].delta for chunk in stream]

    reasoning = "".join(
        (delta.model_extra or {}).get("reasoning_content") or "" for delta in deltas
    )
    assert reasoning
    assert "Paris" in "".join(delta.content or "" for delta in deltas)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What is OpenVINO?", "OpenVINO is an open-source toolkit"),
        ("Repeat after me: river stone cloud", "river stone cloud"),
        ("count to 40", " ".join(str(number) for number in range(1, 41))),
        ("Count to 100.", " ".join(str(number) for number in range(1, 101))),
    ],
)
def test_it_knows_facts_copies_and_counts(
    client: openai.OpenAI, question: str, expected: str
) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": question}]
    )

    assert (answer.choices[0].message.content or "").startswith(expected)


def test_json_is_parsed_into_a_pydantic_model(client: openai.OpenAI) -> None:
    class Person(BaseModel):
        name: str
        age: int

    answer = client.chat.completions.parse(
        model=MODEL,
        messages=[
            {
                "role": "user",
                "content": "Give me JSON for a person named Bob who is 42 years old.",
            }
        ],
        response_format=Person,
    )

    assert answer.choices[0].message.parsed == Person(name="Bob", age=42)
