"""Prompts of every form, templates, efforts and echoes, with the real engine."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest

from tests.contract.tiny_chat import MODEL, PARIS, QUESTION, prompt_of

pytestmark = pytest.mark.system

COUNT_TO_5 = prompt_of("Count to 5.")
FIVE = "1 2 3 4 5"
BEGUN = [*QUESTION, {"role": "assistant", "content": "The capital of"}]


def complete(raw: httpx.Client, tree: str, **fields: Any) -> dict[str, Any]:
    body = {"model": MODEL, "prompt": COUNT_TO_5, "max_tokens": 40, **fields}
    return answered(raw.post(f"/{tree}/completions", json=body))


def chat(raw: httpx.Client, tree: str, **fields: Any) -> dict[str, Any]:
    body = {"model": MODEL, "messages": QUESTION, **fields}
    return answered(raw.post(f"/{tree}/chat/completions", json=body))


def answered(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def message_of(body: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = body["choices"][0]["message"]
    return message


def ids_of(raw: httpx.Client, **fields: Any) -> list[int]:
    ids: list[int] = answered(raw.post("/tokenize", json={"model": MODEL, **fields}))["tokens"]
    return ids


# Completions


def test_a_prompt_can_be_text_or_ids_and_one_or_many(raw: httpx.Client, tree: str) -> None:
    ids = ids_of(raw, prompt=COUNT_TO_5)

    for prompt in (COUNT_TO_5, [COUNT_TO_5], ids, [ids]):
        assert complete(raw, tree, prompt=prompt)["choices"][0]["text"] == FIVE
    many = complete(raw, tree, prompt=[ids, ids])
    assert [choice["text"] for choice in many["choices"]] == [FIVE, FIVE]


def test_fastdeploys_ids_go_before_the_prompt(raw: httpx.Client, tree: str) -> None:
    ids = ids_of(raw, prompt=COUNT_TO_5)

    answer = complete(raw, tree, prompt="Something else", prompt_token_ids=ids)

    assert answer["choices"][0]["text"] == FIVE
    assert answer["usage"]["prompt_tokens"] == len(ids)


@pytest.mark.parametrize("form", ["text", "ids"])
def test_an_echo_is_the_prompt_before_its_completion(
    raw: httpx.Client, tree: str, form: str
) -> None:
    prompt = COUNT_TO_5 if form == "text" else ids_of(raw, prompt=COUNT_TO_5)

    answer = complete(raw, tree, prompt=prompt, echo=True)

    assert answer["choices"][0]["text"] == COUNT_TO_5 + FIVE
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_an_echo_is_streamed_first(client: openai.OpenAI) -> None:
    # The client's own type forbids the null finish reason that every server streams.
    loose = openai.OpenAI(base_url=client.base_url, api_key=client.api_key)
    stream = loose.completions.create(
        model=MODEL, prompt=[COUNT_TO_5, COUNT_TO_5], max_tokens=40, echo=True, stream=True
    )
    chunks = list(stream)

    texts = ["", ""]
    for chunk in chunks:
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == [COUNT_TO_5 + FIVE] * 2
    assert [chunk.choices[0].text for chunk in chunks[:2]] == [COUNT_TO_5] * 2


def test_an_echo_alone_generates_no_token(raw: httpx.Client, tree: str) -> None:
    answer = complete(raw, tree, echo=True, max_tokens=0)

    assert answer["choices"][0]["text"] == COUNT_TO_5
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 0
    assert answer["usage"]["prompt_tokens"] == len(ids_of(raw, prompt=COUNT_TO_5))


def test_a_prompt_is_truncated(raw: httpx.Client, tree: str) -> None:
    ids = ids_of(raw, prompt=COUNT_TO_5)
    padded = [5] * 3000 + ids

    cut = complete(raw, tree, prompt=padded, truncate_prompt_tokens=len(ids))
    start = complete(
        raw,
        tree,
        prompt=[*ids, *[5] * 3000],
        truncate_prompt_tokens=len(ids),
        truncation_side="right",
    )
    filled = complete(raw, tree, prompt=padded, truncate_prompt_tokens=-1, max_tokens=30)

    assert cut["choices"][0]["text"] == start["choices"][0]["text"] == FIVE
    assert cut["usage"]["prompt_tokens"] == len(ids)
    assert filled["usage"]["prompt_tokens"] == 2048 - 30


def test_a_suffix_needs_a_model_that_fills_in(raw: httpx.Client, tree: str) -> None:
    response = raw.post(f"/{tree}/completions", json={"prompt": "a", "suffix": "b"})

    assert response.status_code == 400
    assert response.json()["error"]["param"] == "suffix"


# Chats


@pytest.mark.parametrize("field", ["messages", "prompt_token_ids"])
def test_a_chat_can_be_token_ids(raw: httpx.Client, tree: str, field: str) -> None:
    ids = ids_of(raw, messages=QUESTION)

    answer = chat(raw, tree, **{field: ids})

    assert message_of(answer)["content"] == PARIS
    assert answer["usage"]["prompt_tokens"] == len(ids)


def test_token_ids_that_start_reasoning_get_reasoning(raw: httpx.Client, tree: str) -> None:
    ids = ids_of(raw, messages=QUESTION, chat_template_kwargs={"enable_thinking": True})

    message = message_of(chat(raw, tree, messages=ids))

    assert "capital of France" in message["reasoning_content"]
    assert message["content"] == PARIS


def test_a_message_is_continued(raw: httpx.Client, tree: str) -> None:
    answer = chat(raw, tree, messages=BEGUN, continue_final_message=True)

    assert message_of(answer)["content"] == " France is Paris."


def test_a_chat_echoes_the_start_of_the_answer(raw: httpx.Client, tree: str) -> None:
    answer = chat(raw, tree, messages=BEGUN, continue_final_message=True, echo=True)

    assert message_of(answer)["content"] == PARIS


def test_a_streamed_chat_echoes_too(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL,
        messages=BEGUN,  # type: ignore[arg-type]
        stream=True,
        extra_body={"continue_final_message": True, "echo": True},
    )

    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == PARIS


def test_without_the_template_the_messages_are_the_prompt(raw: httpx.Client, tree: str) -> None:
    message = {"role": "user", "content": COUNT_TO_5}

    answer = chat(raw, tree, messages=[message], disable_chat_template=True)

    assert message_of(answer)["content"] == FIVE
    assert answer["usage"]["prompt_tokens"] == len(ids_of(raw, prompt=COUNT_TO_5))


def test_without_a_generation_prompt_the_model_writes_the_start_itself(
    raw: httpx.Client, tree: str
) -> None:
    opened, bare = chat(raw, tree), chat(raw, tree, add_generation_prompt=False)

    assert bare["usage"]["prompt_tokens"] < opened["usage"]["prompt_tokens"]
    assert message_of(bare)["content"] != message_of(opened)["content"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
        ({"documents": [{"text": "a"}]}, "documents"),
        ({"chat_template": "{{ messages }}"}, "chat_template"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"prompt_token_ids": [99999]}, "prompt_token_ids"),
    ],
)
def test_an_impossible_rendering_is_refused_by_name(
    raw: httpx.Client, tree: str, fields: dict[str, Any], param: str
) -> None:
    body = {"model": MODEL, "messages": QUESTION, **fields}

    response = raw.post(f"/{tree}/chat/completions", json=body)

    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


# Efforts


@pytest.mark.parametrize("effort", ["minimal", "low", "medium", "high", "xhigh", "max"])
def test_any_effort_makes_the_model_think(raw: httpx.Client, tree: str, effort: str) -> None:
    answer = chat(raw, tree, reasoning_effort=effort)

    assert message_of(answer)["reasoning_content"]
    assert message_of(answer)["content"] == PARIS
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0


def test_effort_none_has_no_reasoning(raw: httpx.Client, tree: str) -> None:
    answer = chat(raw, tree, reasoning_effort="none")

    assert "reasoning_content" not in message_of(answer)
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0


def test_responses_have_the_same_efforts(client: openai.OpenAI) -> None:
    for effort in ("low", "none"):
        response = client.responses.create(
            model=MODEL,
            input="What is the capital of France?",
            reasoning={"effort": effort},  # type: ignore[typeddict-item]
        )

        kinds = [item.type for item in response.output]
        assert kinds == (["reasoning", "message"] if effort == "low" else ["message"])
        assert response.output_text == PARIS


def test_reasoning_can_be_left_out_but_is_counted(raw: httpx.Client, tree: str) -> None:
    shown = chat(raw, tree, reasoning_effort="high")
    hidden = chat(raw, tree, reasoning_effort="high", include_reasoning=False)

    assert "reasoning_content" not in message_of(hidden)
    assert message_of(hidden)["content"] == PARIS
    for usage in (shown["usage"], hidden["usage"]):
        assert usage["completion_tokens_details"]["reasoning_tokens"] > 0


def test_a_stream_leaves_reasoning_out_too(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL,
        messages=QUESTION,  # type: ignore[arg-type]
        stream=True,
        extra_body={"reasoning_effort": "high", "include_reasoning": False},
    )
    deltas = [chunk.choices[0].delta for chunk in stream]

    assert not any("reasoning_content" in (delta.model_extra or {}) for delta in deltas)
    assert "".join(delta.content or "" for delta in deltas) == PARIS
