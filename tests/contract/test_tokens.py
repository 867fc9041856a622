"""Log-probabilities, token ids and changes of logits, over HTTP."""

import json
import math
from typing import Any

import httpx
import openai
import pytest

from tests.tables import table

from . import tiny_chat as tiny

PROMPT = tiny.prompt_of("count to 9")
CHAT = "/v1/chat/completions"


def chat(raw: httpx.Client, **fields: Any) -> Any:
    return tiny.ask(raw, CHAT, **{"messages": tiny.QUESTION, "temperature": 0, **fields})


def test_a_bias_moves_a_token_and_only_allowed_tokens_are_generated(raw: httpx.Client) -> None:
    blue, paris = tiny.ids_of(raw, " blue")[0], tiny.ids_of(raw, " Paris")[0]

    assert tiny.text_of(chat(raw, logit_bias={str(blue): 100}, max_tokens=4)) == " blue" * 4
    assert " Paris" not in tiny.text_of(chat(raw, logit_bias={str(paris): -100}))

    allowed = tiny.ids_of(raw, " red blue")
    answer = chat(raw, max_tokens=6, temperature=1.5, allowed_token_ids=allowed)
    assert set(tiny.text_of(answer).split()) <= {"red", "blue"}


@table("endpoint", tiny.OPENAI)
def test_a_bad_word_is_not_generated(endpoint: str, raw: httpx.Client) -> None:
    paris = tiny.ids_of(raw, " Paris")
    asked = {"temperature": 0, **tiny.asking(endpoint, tiny.CAPITAL)}
    assert "Paris" in tiny.text_of(tiny.ask(raw, f"/v1/{endpoint}", **asked))

    fields: Any
    for fields in (
        {"bad_words": ["Paris"]},
        {"bad_words_token_ids": [paris]},
        {"logit_bias": {paris[0]: -100}},
    ):
        assert "Paris" not in tiny.text_of(tiny.ask(raw, f"/v1/{endpoint}", **asked, **fields))


def test_chat_returns_the_tokens_of_its_answer(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=tiny.MODEL, messages=tiny.QUESTION, logprobs=True, top_logprobs=5, temperature=0
    )
    returned = answer.choices[0].logprobs
    assert returned is not None
    assert returned.content is not None
    assert "".join(token.token for token in returned.content) == tiny.PARIS
    assert b"".join(bytes(token.bytes or ()) for token in returned.content).decode() == tiny.PARIS
    for token in returned.content:
        assert len(token.top_logprobs) == 5
        assert token.top_logprobs[0].token == token.token
        assert sum(math.exp(top.logprob) for top in token.top_logprobs) <= 1 + 1e-6


def first_offsets(raw: httpx.Client, tree: str, *, num_bytes: int = 0, **values: Any) -> list[int]:
    """The first `text_offset` of each choice of a body and of a stream, which are the same."""
    body = {"model": tiny.MODEL, "logprobs": 0, "temperature": 0, "max_tokens": 3, **values}
    url = f"/{tree}/completions"
    whole = json.dumps(body).ljust(num_bytes)
    choices = raw.post(url, content=whole).raise_for_status().json()["choices"]
    offsets = {each["index"]: each["logprobs"]["text_offset"] for each in choices}
    streamed: dict[int, list[int]] = {at: [] for at in offsets}
    with raw.stream(
        "POST", url, content=json.dumps({**body, "stream": True}).ljust(num_bytes)
    ) as stream:
        for line in stream.iter_lines():
            for choice in json.loads(line[6:])["choices"] if line.startswith("data: {") else ():
                streamed[choice["index"]] += (choice["logprobs"] or {}).get("text_offset", [])
    assert streamed == offsets
    return [each[0] for _, each in sorted(offsets.items())]


def test_offsets_begin_after_the_prompt_in_v1_and_with_the_text_in_v3(raw: httpx.Client) -> None:
    prompts = ["é 中 🍇", "count to 3"]
    ids = [tiny.ask(raw, "/v1/tokenize", prompt=each)["tokens"] for each in prompts]

    assert first_offsets(raw, "v1", prompt=prompts, n=2) == [5, 5, 10, 10]
    assert first_offsets(raw, "v1", prompt=ids, n=2) == [5, 5, 10, 10]
    # A worker process reads a body of more than 4 KiB.
    assert first_offsets(raw, "v1", num_bytes=5000, prompt=prompts) == [5, 10]
    assert first_offsets(raw, "v3", prompt=prompts, n=2) == [0, 0, 0, 0]
    for tree in ("v1", "v3"):
        assert first_offsets(raw, tree, prompt=prompts, echo=True) == [0, 0]


def test_a_prompt_can_be_scored_without_generation(client: openai.OpenAI) -> None:
    """Evaluation harnesses score many prompts with the same start."""
    for ending in ("1 2 3 4 5 6 7 8 9", "1 2 3 4 5 6 7 9 8"):
        answer = tiny.lenient(client).completions.create(
            model=tiny.MODEL, prompt=PROMPT + ending, echo=True, max_tokens=0, logprobs=1
        )
        choice = answer.choices[0]
        returned = choice.logprobs
        assert returned is not None
        assert returned.token_logprobs is not None
        assert "".join(returned.tokens or ()) == choice.text == PROMPT + ending
        assert returned.token_logprobs[0] is None
        assert all(isinstance(each, float) for each in returned.token_logprobs[1:])
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 0


def test_logprobs_of_prompts_are_ranked_by_id_and_chosen_ids_come_always(raw: httpx.Client) -> None:
    returned = chat(raw, prompt_logprobs=2, max_tokens=2)["prompt_logprobs"]
    ids = chat(raw, return_token_ids=True, max_tokens=2)["prompt_token_ids"]
    assert returned[0] is None
    assert len(returned) == len(ids)
    for token_id, entry in zip(ids[1:], returned[1:], strict=True):
        assert next(iter(entry)) == str(token_id)
        assert {"logprob", "rank", "decoded_token"} == set(entry[str(token_id)])
        assert 2 <= len(entry) <= 3

    blue = tiny.ids_of(raw, " blue")[0]
    fields: Any = {"logprobs": True, "logprob_token_ids": [blue], "max_tokens": 3}
    [choice] = chat(raw, **fields, return_tokens_as_token_ids=True)["choices"]
    for token in choice["logprobs"]["content"]:
        assert [top["token"] for top in token["top_logprobs"]] == [f"token_id:{blue}"]


def test_a_temperature_can_be_part_of_the_distribution(raw: httpx.Client) -> None:
    def first(**values: Any) -> float:
        asked = tiny.asking("chat/completions", "Tell me a story.")
        fields: Any = {"logprobs": True, "max_tokens": 1, "seed": 5, "temperature": 0.3}
        [choice] = chat(raw, **asked, **fields, **values)["choices"]
        return float(choice["logprobs"]["content"][0]["logprob"])

    assert first(temp_scaled_logprobs=True) > first()
    assert first(top_p=0.01, top_p_normalized_logprobs=True) == pytest.approx(0, abs=1e-6)


THINKING: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": True}}


@table("field", ["thinking_token_budget", "reasoning_max_tokens"])
def test_a_budget_of_5_ends_the_reasoning_at_5(field: str, raw: httpx.Client) -> None:
    free, held = chat(raw, **THINKING), chat(raw, **THINKING, **{field: 5})
    long, short = (each["choices"][0]["message"]["reasoning"] for each in (free, held))

    # The closing tag is a token of reasoning too.
    assert tiny.num_reasoning(held) == 6
    assert long.startswith(short)
    assert len(short) < len(long)
    assert tiny.text_of(held)
