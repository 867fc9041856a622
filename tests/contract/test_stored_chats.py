"""Stored chat completions through openai-python."""

from typing import Any

import httpx
import openai
import pytest

from tests.conftest import Running

from .tiny_chat import MODEL, PARIS, QUESTION, SUNNY, WEATHER, WEATHER_QUESTION


def chat(client: openai.OpenAI, messages: Any = QUESTION, **fields: Any) -> Any:
    return client.chat.completions.create(model=MODEL, messages=messages, store=True, **fields)


def test_a_chat_is_found_changed_and_deleted(v1: openai.OpenAI) -> None:
    made = chat(v1, metadata={"a": "b"})

    found = v1.chat.completions.retrieve(made.id)
    assert found == made
    assert found.choices[0].message.content == PARIS
    changed: Any = v1.chat.completions.update(made.id, metadata={"c": "d"})
    assert changed.metadata == {"c": "d"}
    assert v1.chat.completions.retrieve(made.id) == changed
    cleared: Any = v1.chat.completions.update(made.id, metadata=None)
    assert cleared.metadata == {}
    gone = v1.chat.completions.delete(made.id)
    assert (gone.id, gone.object, gone.deleted) == (made.id, "chat.completion.deleted", True)
    asks: Any = (
        v1.chat.completions.retrieve,
        v1.chat.completions.delete,
        v1.chat.completions.messages.list,
        lambda id_: v1.chat.completions.update(id_, metadata={}),
    )
    for ask in asks:
        with pytest.raises(openai.NotFoundError, match=f"Chat completion with id '{made.id}' not"):
            ask(made.id)


def test_a_stream_is_stored_as_the_whole_answer_with_its_calls(v1: openai.OpenAI) -> None:
    whole = chat(v1, WEATHER_QUESTION, tools=[WEATHER], temperature=0)
    with v1.chat.completions.stream(
        model=MODEL, messages=WEATHER_QUESTION, tools=[WEATHER], temperature=0, store=True
    ) as stream:
        streamed = stream.get_final_completion()

    found = v1.chat.completions.retrieve(streamed.id)
    assert found.choices[0].finish_reason == "tool_calls"
    (call,), (other,) = found.choices[0].message.tool_calls, whole.choices[0].message.tool_calls  # type: ignore[misc]
    assert call.function == other.function  # type: ignore[union-attr]
    assert found.usage.total_tokens == whole.usage.total_tokens  # type: ignore[union-attr]


def test_lists_are_filtered_and_paged_in_both_orders(v1: openai.OpenAI) -> None:
    mark = {"test": "lists"}
    ids = [chat(v1, max_tokens=1, metadata={**mark, "n": f"{n % 2}"}).id for n in range(5)]
    chat(v1, max_tokens=1, metadata={"test": "other"})

    def listed(**query: Any) -> list[str]:
        return [each.id for each in v1.chat.completions.list(**query)]

    assert listed(metadata=mark, limit=2) == ids
    assert listed(metadata=mark, limit=2, order="desc") == ids[::-1]
    assert listed(metadata={**mark, "n": "1"}) == ids[1::2]
    assert listed(metadata=mark, after=ids[2]) == ids[3:]
    assert listed(metadata=mark, model=MODEL) == ids
    assert listed(metadata=mark, model="other") == []
    assert set(ids) < set(listed(limit=100))
    with pytest.raises(openai.BadRequestError, match="metadata\\[key\\]=value"):
        listed(extra_query={"metadata[a][b]": "c"})
    with pytest.raises(openai.BadRequestError, match="at most 16"):
        listed(metadata={f"{n}": "" for n in range(17)})


def test_a_prompt_of_token_ids_is_stored_without_messages(running: Running) -> None:
    client = openai.OpenAI(base_url=f"{running.base_url}/v3", api_key=running.api_key)

    made = chat(client, [], extra_body={"prompt_token_ids": [5, 6, 7], "messages": None})

    assert list(client.chat.completions.messages.list(made.id)) == []


def test_messages_are_those_of_the_request_with_ids(running: Running) -> None:
    """The client's own type of a message takes the assistant's only, so it does not validate."""
    client = openai.OpenAI(base_url=f"{running.base_url}/v1", api_key=running.api_key)
    call = {"id": "c", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    parts = [{"type": "text", "text": "What is the weather in Paris?"}]
    made = chat(
        client,
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": parts},
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": SUNNY},
        ],
        tools=[WEATHER],
    )

    messages = list(client.chat.completions.messages.list(made.id, limit=3))
    ids = [each.id for each in messages]
    assert len(set(ids)) == 4
    assert [each.role for each in messages] == ["system", "user", "assistant", "tool"]
    assert [each.content for each in messages] == ["Be brief.", None, None, SUNNY]
    assert messages[1].content_parts is not None
    assert messages[1].content_parts[0].text == parts[0]["text"]  # type: ignore[union-attr]
    assert messages[2].tool_calls is not None
    backward = client.chat.completions.messages.list(made.id, order="desc", limit=3)
    assert [each.id for each in backward] == ids[::-1]
    (last,) = client.chat.completions.messages.list(made.id, after=ids[2])
    assert last.id == ids[3]


def test_methods_are_those_of_the_path(raw: httpx.Client) -> None:
    answer = raw.put("/v1/chat/completions")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, POST")
    assert raw.put("/v1/chat/completions/x").headers["allow"] == "GET, DELETE, POST"
    assert raw.get("/v1/chat/completions?limit=0").json()["error"]["param"] == "limit"
