"""Prompts of every form, templates, efforts and echoes, with the real engine."""

from typing import Any

import httpx
import openai

from tests.tables import table

from . import tiny_chat as tiny

COUNT_TO_5 = tiny.prompt_of("Count to 5.")
FIVE = "1 2 3 4 5"
BEGUN: Any = [*tiny.QUESTION, {"role": "assistant", "content": "The capital of"}]


def complete(raw: httpx.Client, tree: str, **fields: Any) -> Any:
    return tiny.ask(
        raw, f"/{tree}/completions", **{"prompt": COUNT_TO_5, "max_tokens": 40, **fields}
    )


def chat(raw: httpx.Client, tree: str, **fields: Any) -> Any:
    return tiny.ask(raw, f"/{tree}/chat/completions", **{"messages": tiny.QUESTION, **fields})


def streamed(client: openai.OpenAI, messages: Any = tiny.QUESTION, **fields: Any) -> list[Any]:
    """The deltas of a chat."""
    stream = client.chat.completions.create(
        model=tiny.MODEL, messages=messages, stream=True, extra_body=fields
    )
    return [chunk.choices[0].delta for chunk in stream]


def ids_of(raw: httpx.Client, **fields: Any) -> list[int]:
    ids: list[int] = tiny.ask(raw, "/tokenize", **fields)["tokens"]
    return ids


# Completions


def test_a_prompt_can_be_text_or_ids_and_fastdeploys_go_first(raw: httpx.Client, tree: str) -> None:
    ids = ids_of(raw, prompt=COUNT_TO_5)

    for prompt in (COUNT_TO_5, [COUNT_TO_5], ids, [ids]):
        assert tiny.text_of(complete(raw, tree, prompt=prompt)) == FIVE
    many = complete(raw, tree, prompt=[ids, ids])
    assert [choice["text"] for choice in many["choices"]] == [FIVE, FIVE]

    answer = complete(raw, tree, prompt="Something else", prompt_token_ids=ids)
    assert tiny.text_of(answer) == FIVE
    assert answer["usage"]["prompt_tokens"] == len(ids)


def test_an_echo_is_streamed_first_with_its_tokens(client: openai.OpenAI) -> None:
    prompts = [COUNT_TO_5, "count to 3"]
    asked: Any = {"prompt": prompts, "max_tokens": 40, "echo": True, "temperature": 0}
    completions = tiny.lenient(client).completions
    stream = completions.create(model=tiny.MODEL, **asked, stream=True, logprobs=0)
    texts, tokens = ["", ""], ["", ""]
    for chunk in stream:
        [choice] = chunk.choices
        texts[choice.index] += choice.text
        if choice.logprobs is not None:
            tokens[choice.index] += "".join(choice.logprobs.tokens or ())

    assert texts[0] == COUNT_TO_5 + FIVE
    assert texts[1].startswith(prompts[1])
    assert [each.removesuffix("<|im_end|>") for each in tokens] == texts


def test_a_prompt_is_truncated(raw: httpx.Client, tree: str) -> None:
    ids = ids_of(raw, prompt=COUNT_TO_5)
    padded, most = [5] * 3000 + ids, {"truncate_prompt_tokens": len(ids)}

    cut = complete(raw, tree, prompt=padded, **most)
    start = complete(raw, tree, prompt=[*ids, *[5] * 3000], **most, truncation_side="right")
    filled = complete(raw, tree, prompt=padded, truncate_prompt_tokens=-1, max_tokens=30)

    assert tiny.text_of(cut) == tiny.text_of(start) == FIVE
    assert cut["usage"]["prompt_tokens"] == len(ids)
    assert filled["usage"]["prompt_tokens"] == tiny.CONTEXT - 30


def test_a_parsed_completion_has_its_reasoning_and_the_time_of_its_tokens(
    raw: httpx.Client,
) -> None:
    prompt = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    asked = {"model": tiny.MODEL, "prompt": f"{prompt}<think>\n", "max_tokens": 200}
    extras = {"parse_output": True, "return_arrival_time": True}
    (plain,), (parsed,) = (
        raw.post("/v1/completions", json={**asked, **more}).json()["choices"]
        for more in ({}, extras)
    )
    reasoning, text = plain["text"].split("\n\n\n")
    assert (parsed["reasoning_content"], parsed["text"]) == (reasoning, text)
    assert parsed["arrival_time"] > 0


# Chats


@table("field", ["messages", "prompt_token_ids"])
def test_a_chat_can_be_token_ids(raw: httpx.Client, tree: str, field: str) -> None:
    ids = ids_of(raw, messages=tiny.QUESTION)

    answer = chat(raw, tree, **{field: ids})

    assert tiny.text_of(answer) == tiny.PARIS
    assert answer["usage"]["prompt_tokens"] == len(ids)


def test_a_message_is_continued_and_echoed_on_request(
    raw: httpx.Client, client: openai.OpenAI, tree: str
) -> None:
    fields: Any = {"messages": BEGUN, "continue_final_message": True}

    assert tiny.text_of(chat(raw, tree, **fields)) == " France is Paris."
    assert tiny.text_of(chat(raw, tree, **fields, echo=True)) == tiny.PARIS
    deltas = streamed(client, **fields, echo=True)
    assert "".join(delta.content or "" for delta in deltas) == tiny.PARIS


def test_a_prompt_can_lack_the_template_and_the_start_of_the_answer(
    raw: httpx.Client, tree: str
) -> None:
    message = {"role": "user", "content": COUNT_TO_5}

    answer = chat(raw, tree, messages=[message], disable_chat_template=True)

    assert tiny.text_of(answer) == FIVE
    assert answer["usage"]["prompt_tokens"] == len(ids_of(raw, prompt=COUNT_TO_5))

    opened, bare = chat(raw, tree), chat(raw, tree, add_generation_prompt=False)

    assert bare["usage"]["prompt_tokens"] < opened["usage"]["prompt_tokens"]
    assert tiny.text_of(bare) != tiny.text_of(opened)


# Efforts


def test_reasoning_can_be_left_out_but_is_counted(
    raw: httpx.Client, client: openai.OpenAI, tree: str
) -> None:
    fields = {"reasoning_effort": "high", "include_reasoning": False}
    shown, hidden = chat(raw, tree, reasoning_effort="high"), chat(raw, tree, **fields)
    deltas = streamed(client, **fields)

    assert "reasoning_content" not in hidden["choices"][0]["message"]
    assert tiny.text_of(hidden) == tiny.PARIS
    assert tiny.num_reasoning(shown) > 0
    assert tiny.num_reasoning(hidden) > 0
    assert not any("reasoning_content" in (delta.model_extra or {}) for delta in deltas)
    assert "".join(delta.content or "" for delta in deltas) == tiny.PARIS
