"""chat/completions through openai-python, with strict response validation."""

import json
from typing import Any

import openai

from tests.conftest import until_in_parts

from . import tiny_chat as tiny


def chat(client: openai.OpenAI, question: Any = tiny.CAPITAL, **fields: Any) -> Any:
    return client.chat.completions.create(model=tiny.MODEL, messages=messages(question), **fields)


def messages(question: Any) -> Any:
    return [{"role": "user", "content": question}] if isinstance(question, str) else question


def streamed(client: openai.OpenAI, question: Any = tiny.CAPITAL, **fields: Any) -> Any:
    """The answer that the client's helper accumulates."""
    asked = {"model": tiny.MODEL, "messages": messages(question), **fields}
    with client.chat.completions.stream(**asked) as stream:
        for _ in stream:
            pass
        return stream.get_final_completion()


def test_it_answers_with_paris_and_counts_prompt_and_answer(client: openai.OpenAI) -> None:
    answer = chat(client)
    [choice], usage = answer.choices, answer.usage

    assert (answer.model, choice.finish_reason) == (tiny.MODEL, "stop")
    assert choice.message.content == tiny.PARIS
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens > 10
    assert usage.completion_tokens > 5
    assert 0 <= (usage.prompt_tokens_details.cached_tokens or 0) < usage.prompt_tokens
    assert usage.completion_tokens_details.reasoning_tokens == 0


def test_a_stream_adds_up_to_the_text_and_ends_with_usage_on_request(
    client: openai.OpenAI, tree: str
) -> None:
    chunks = until_in_parts(
        lambda: chat(client, "Count to 40.", stream=True),
        lambda chunk: chunk.choices[0].delta.content,
        at_least=5,
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)

    assert text == tiny.numbers(40)
    # Under /v3 the first chunk comes with the first token.
    assert chunks[0].choices[0].delta.content == (None if tree == "v3" else "")
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert all(chunk.usage is None for chunk in chunks)

    *chunks, last = chat(client, stream=True, stream_options={"include_usage": True})

    assert last.choices == []
    assert last.usage.completion_tokens > 5
    assert all(chunk.usage is None for chunk in chunks)


def test_n_choices_come_in_order_and_share_the_cached_prompt(client: openai.OpenAI) -> None:
    unary, final = chat(client, n=3), streamed(client, n=2)

    assert [choice.index for choice in unary.choices] == [0, 1, 2]
    assert {choice.message.content for choice in unary.choices} == {tiny.PARIS}
    assert [choice.message.content for choice in final.choices] == [tiny.PARIS, tiny.PARIS]

    for _ in range(2):
        usage = chat(client, "How are you today? " * 20, n=20, max_tokens=1).usage

    assert 0 < (usage.prompt_tokens_details.cached_tokens or 0) < usage.prompt_tokens


def test_a_weather_tool_gets_the_city_and_its_output_is_used(client: openai.OpenAI) -> None:
    [choice] = chat(client, tiny.WEATHER_QUESTION, tools=[tiny.WEATHER]).choices
    [call] = choice.message.tool_calls
    [whole] = streamed(client, tiny.WEATHER_QUESTION, tools=[tiny.WEATHER]).choices

    assert choice.message.content is None
    assert call.type == "function"
    for each in (choice, whole):
        [called] = each.message.tool_calls
        assert each.finish_reason == "tool_calls"
        assert called.function.name == "get_weather"
        assert json.loads(called.function.arguments) == {"city": "Paris"}
    output = {"role": "tool", "tool_call_id": call.id, "content": tiny.SUNNY}
    turns = [*tiny.WEATHER_QUESTION, choice.message.model_dump(exclude_none=True), output]
    [used] = chat(client, turns, tools=[tiny.WEATHER]).choices
    assert used.message.content == tiny.SUNNY_IN_PARIS


def test_two_cities_give_two_calls_and_none_where_none_may_be(client: openai.OpenAI) -> None:
    question = "What is the weather in Paris and in London?"

    calls = chat(client, question, tools=[tiny.WEATHER]).choices[0].message.tool_calls

    cities = [json.loads(call.function.arguments)["city"] for call in calls]
    assert cities == ["Paris", "London"]
    assert len({call.id for call in calls}) == 2

    [choice] = chat(client, tiny.WEATHER_QUESTION, tools=[tiny.WEATHER], tool_choice="none").choices

    assert (choice.message.tool_calls, choice.finish_reason) == (None, "stop")


def test_reasoning_is_split_from_the_answer_and_an_effort_starts_it(client: openai.OpenAI) -> None:
    answer = chat(client, extra_body={"chat_template_kwargs": {"enable_thinking": True}})

    message = answer.choices[0].message
    assert "Paris" in message.content
    assert "<think>" not in message.content
    assert message.model_extra["reasoning_content"]
    assert message.model_extra["reasoning"]
    assert answer.usage.completion_tokens_details.reasoning_tokens > 0

    chunks = chat(client, reasoning_effort="low", stream=True)
    deltas = [chunk.choices[0].delta for chunk in chunks]

    assert any((delta.model_extra or {}).get("reasoning_content") for delta in deltas)
    assert "Paris" in "".join(delta.content or "" for delta in deltas)


def test_only_a_tool_that_is_allowed_is_called(client: openai.OpenAI) -> None:
    """Without a tool choice the model would call the other tool."""
    pick = {"name": "pick", "parameters": {"type": "object", "properties": {}}}
    tools = [tiny.WEATHER, {"type": "function", "function": pick}]
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "pick"}}]}
    choice = {"type": "allowed_tools", "allowed_tools": allowed}

    fields: Any = {"tools": tools, "tool_choice": choice, "parallel_tool_calls": False}
    [answer] = chat(client, tiny.WEATHER_QUESTION, **fields).choices

    [call] = answer.message.tool_calls
    assert call.function.name == "pick"
