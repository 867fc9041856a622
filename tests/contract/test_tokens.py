"""Log-probabilities, token ids and changes of logits, over HTTP."""

from __future__ import annotations

import json
import math
from typing import Any

import httpx
import openai
import pytest

from tests.contract.tiny_chat import MODEL, PARIS, QUESTION, prompt_of

pytestmark = pytest.mark.system

PROMPT = prompt_of("count to 9")


def ids_of(raw: httpx.Client, text: str) -> list[int]:
    body = {"model": MODEL, "prompt": text, "add_special_tokens": False}
    ids: list[int] = raw.post("/v1/tokenize", json=body).json()["tokens"]
    return ids


def test_a_bias_of_100_makes_a_token_appear(client: openai.OpenAI, raw: httpx.Client) -> None:
    blue = ids_of(raw, " blue")[0]
    answer = client.chat.completions.create(
        model=MODEL, messages=QUESTION, logit_bias={str(blue): 100}, max_tokens=4, temperature=0
    )
    assert answer.choices[0].message.content == " blue" * 4


def test_a_bias_of_minus_100_makes_a_token_vanish(client: openai.OpenAI, raw: httpx.Client) -> None:
    paris = ids_of(raw, " Paris")[0]
    answer = client.chat.completions.create(
        model=MODEL, messages=QUESTION, logit_bias={str(paris): -100}, temperature=0
    )
    assert " Paris" not in (answer.choices[0].message.content or "")


@pytest.mark.parametrize("endpoint", ["chat/completions", "completions", "responses"])
@pytest.mark.parametrize(
    "fields", [{"bad_words": ["Paris"]}, {"bad_words_token_ids": "of Paris"}, {"logit_bias": "map"}]
)
def test_a_bad_word_is_not_generated(
    endpoint: str, fields: dict[str, Any], raw: httpx.Client
) -> None:
    paris = ids_of(raw, " Paris")
    if "bad_words_token_ids" in fields:
        fields = {"bad_words_token_ids": [paris]}
    if "logit_bias" in fields:
        fields = {"logit_bias": {paris[0]: -100}}
    prompt = PROMPT.replace("count to 9", QUESTION[0]["content"])
    asked: dict[str, Any] = {
        "chat/completions": {"messages": QUESTION},
        "completions": {"prompt": prompt},
        "responses": {"input": QUESTION[0]["content"]},
    }[endpoint]
    body = {"model": MODEL, "temperature": 0, **asked}
    plain = raw.post(f"/v1/{endpoint}", json=body)
    changed = raw.post(f"/v1/{endpoint}", json={**body, **fields})

    assert changed.status_code == 200, changed.text
    assert "Paris" in plain.text
    assert "Paris" not in changed.text


def test_only_allowed_tokens_are_generated(client: openai.OpenAI, raw: httpx.Client) -> None:
    allowed = ids_of(raw, " red blue")
    answer = client.chat.completions.create(
        model=MODEL,
        messages=QUESTION,
        max_tokens=6,
        temperature=1.5,
        extra_body={"allowed_token_ids": allowed},
    )
    words = set((answer.choices[0].message.content or "").split())
    assert words <= {"red", "blue"}


def test_chat_returns_the_tokens_of_its_answer(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=QUESTION, logprobs=True, top_logprobs=5, temperature=0
    )
    returned = answer.choices[0].logprobs
    assert returned is not None
    assert returned.content is not None
    assert "".join(token.token for token in returned.content) == PARIS
    assert b"".join(bytes(token.bytes or ()) for token in returned.content).decode() == PARIS
    for token in returned.content:
        assert len(token.top_logprobs) == 5
        assert token.top_logprobs[0].token == token.token
        assert sum(math.exp(top.logprob) for top in token.top_logprobs) <= 1 + 1e-6


def test_a_stream_has_the_same_tokens_as_the_whole_answer(client: openai.OpenAI) -> None:
    options: dict[str, Any] = {
        "logprobs": True,
        "top_logprobs": 2,
        "temperature": 0,
        "stop": ["is"],
    }
    whole = client.chat.completions.create(model=MODEL, messages=QUESTION, **options)
    chunks = client.chat.completions.create(model=MODEL, messages=QUESTION, stream=True, **options)
    streamed = [
        token.model_dump()
        for chunk in chunks
        for choice in chunk.choices
        if choice.logprobs is not None
        for token in choice.logprobs.content or ()
    ]
    assert whole.choices[0].logprobs is not None
    expected = [token.model_dump() for token in whole.choices[0].logprobs.content or ()]
    assert [token["token"] for token in streamed] == [token["token"] for token in expected]
    assert len(streamed) > 2


def test_reasoning_and_calls_are_not_among_the_tokens_of_the_answer(raw: httpx.Client) -> None:
    body = {
        "model": MODEL,
        "messages": QUESTION,
        "logprobs": True,
        "temperature": 0,
        "chat_template_kwargs": {"enable_thinking": True},
    }
    choice = raw.post("/v1/chat/completions", json=body).json()["choices"][0]
    text = "".join(token["token"] for token in choice["logprobs"]["content"])
    assert choice["message"]["reasoning"]
    assert text.strip() == choice["message"]["content"]


def test_completions_return_offsets_in_the_text(client: openai.OpenAI, tree: str) -> None:
    choice = client.completions.create(
        model=MODEL, prompt=PROMPT, logprobs=3, temperature=0, max_tokens=10
    ).choices[0]
    returned = choice.logprobs
    assert returned is not None
    assert returned.tokens is not None
    assert returned.text_offset is not None
    assert "".join(returned.tokens) == choice.text
    whole = PROMPT + choice.text if tree == "v1" else choice.text
    for token, offset in zip(returned.tokens, returned.text_offset, strict=True):
        assert whole[offset:].startswith(token)
    assert all(len(top) in (3, 4) for top in returned.top_logprobs or ())


def first_offsets(raw: httpx.Client, tree: str, *, num_bytes: int = 0, **values: Any) -> list[int]:
    """The first `text_offset` of each choice of a body and of a stream, which are the same."""
    body = {"model": MODEL, "logprobs": 0, "temperature": 0, "max_tokens": 3, **values}
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
    ids = [
        raw.post("/v1/tokenize", json={"model": MODEL, "prompt": each}).json()["tokens"]
        for each in prompts
    ]
    lengths = [5, 5, 10, 10]

    assert first_offsets(raw, "v1", prompt=prompts, n=2) == lengths
    assert first_offsets(raw, "v1", prompt=ids, n=2) == lengths
    # A worker process reads a body of more than 4 KiB.
    assert first_offsets(raw, "v1", num_bytes=5000, prompt=prompts) == [5, 10]
    assert first_offsets(raw, "v3", prompt=prompts, n=2) == [0, 0, 0, 0]
    for tree in ("v1", "v3"):
        assert first_offsets(raw, tree, prompt=prompts, echo=True) == [0, 0]


@pytest.fixture
def lenient(client: openai.OpenAI) -> openai.OpenAI:
    """OpenAI's own types do not accept the null with which an echoed prompt begins, in
    OpenAI's answers too."""
    return openai.OpenAI(base_url=client.base_url, api_key=client.api_key, max_retries=0)


def test_a_prompt_can_be_scored_without_generation(lenient: openai.OpenAI) -> None:
    """Evaluation harnesses score many prompts with the same start."""
    for ending in ("1 2 3 4 5 6 7 8 9", "1 2 3 4 5 6 7 9 8"):
        answer = lenient.completions.create(
            model=MODEL, prompt=PROMPT + ending, echo=True, max_tokens=0, logprobs=1
        )
        choice = answer.choices[0]
        returned = choice.logprobs
        assert returned is not None
        assert returned.tokens is not None
        assert returned.token_logprobs is not None
        assert choice.text == PROMPT + ending
        assert "".join(returned.tokens) == choice.text
        assert returned.token_logprobs[0] is None
        assert all(isinstance(each, float) for each in returned.token_logprobs[1:])
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 0


def score(client: openai.OpenAI, ending: str, **values: Any) -> float:
    answer = client.completions.create(
        model=MODEL, prompt=PROMPT + ending, echo=True, logprobs=1, temperature=0, **values
    )
    returned = answer.choices[0].logprobs
    assert returned is not None
    assert returned.token_logprobs is not None
    return sum(each for each in returned.token_logprobs[1:] if each is not None)


def test_the_right_continuation_scores_higher_than_a_wrong_one(lenient: openai.OpenAI) -> None:
    right = score(lenient, "1 2 3 4 5 6 7 8 9", max_tokens=0)
    wrong = score(lenient, "1 2 3 4 9 6 7 8 9", max_tokens=0)
    assert right > wrong + 2


def test_an_echo_of_several_prompts_streams_with_its_tokens(lenient: openai.OpenAI) -> None:
    prompts = ["count to 3", "hello there"]
    texts = ["", ""]
    tokens: list[list[str]] = [[], []]
    for chunk in lenient.completions.create(
        model=MODEL, prompt=prompts, echo=True, logprobs=0, max_tokens=3, stream=True, temperature=0
    ):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            if choice.logprobs is not None:
                tokens[choice.index] += choice.logprobs.tokens or ()
    assert [text.startswith(prompt) for text, prompt in zip(texts, prompts, strict=True)] == [
        True,
        True,
    ]
    assert ["".join(each) for each in tokens] == texts


def test_prompt_logprobs_are_ranked_by_id(raw: httpx.Client) -> None:
    body = {"model": MODEL, "messages": QUESTION, "prompt_logprobs": 2, "max_tokens": 2}
    returned = raw.post("/v1/chat/completions", json=body).json()["prompt_logprobs"]
    body = {**body, "return_token_ids": True}
    ids = raw.post("/v1/chat/completions", json=body).json()["prompt_token_ids"]
    assert returned[0] is None
    assert len(returned) == len(ids)
    for token_id, entry in zip(ids[1:], returned[1:], strict=True):
        assert next(iter(entry)) == str(token_id)
        assert {"logprob", "rank", "decoded_token"} == set(entry[str(token_id)])
        assert 2 <= len(entry) <= 3


def test_logprob_token_ids_are_returned_at_every_position(raw: httpx.Client) -> None:
    blue = ids_of(raw, " blue")[0]
    body = {
        "model": MODEL,
        "messages": QUESTION,
        "logprobs": True,
        "logprob_token_ids": [blue],
        "return_tokens_as_token_ids": True,
        "max_tokens": 3,
    }
    content = raw.post("/v1/chat/completions", json=body).json()["choices"][0]["logprobs"][
        "content"
    ]
    for token in content:
        assert [top["token"] for top in token["top_logprobs"]] == [f"token_id:{blue}"]


def test_a_temperature_can_be_part_of_the_distribution(client: openai.OpenAI) -> None:
    def first(**values: Any) -> float:
        answer = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "Tell me a story."}],
            logprobs=True,
            max_tokens=1,
            seed=5,
            temperature=0.3,
            extra_body=values,
        )
        returned = answer.choices[0].logprobs
        assert returned is not None
        assert returned.content
        return returned.content[0].logprob

    assert first(temp_scaled_logprobs=True) > first()
    assert first(top_p=0.01, top_p_normalized_logprobs=True) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_token_ids_come_with_the_text(is_streamed: bool, raw: httpx.Client) -> None:
    body = {
        "model": MODEL,
        "prompt": ["count to 3", "hello"],
        "return_token_ids": True,
        "max_tokens": 5,
        "stream": is_streamed,
        "temperature": 0,
    }
    found: dict[str, list[list[int]]] = {"prompt_token_ids": [[], []], "token_ids": [[], []]}
    if is_streamed:
        with raw.stream("POST", "/v1/completions", json=body) as answer:
            lines = [line[6:] for line in answer.iter_lines() if line.startswith("data: {")]
        choices = [choice for line in lines for choice in json.loads(line)["choices"]]
    else:
        choices = raw.post("/v1/completions", json=body).json()["choices"]
    for choice in choices:
        for name, lists in found.items():
            lists[choice["index"]] += choice.get(name, [])
    assert found["prompt_token_ids"] == [ids_of(raw, "count to 3"), ids_of(raw, "hello")]
    assert all(1 <= len(ids) <= 5 for ids in found["token_ids"])


def source_of(endpoint: str, prompt: str) -> dict[str, Any]:
    """Return the prompt under the name of the endpoint."""
    return {"prompt": prompt} if endpoint == "completions" else {"messages": QUESTION}


def answers(raw: httpx.Client, endpoint: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all choices or chunks of choices; for chats their messages or deltas."""
    if not body["stream"]:
        choices = raw.post(f"/v1/{endpoint}", json=body).json()["choices"]
    else:
        with raw.stream("POST", f"/v1/{endpoint}", json=body) as answer:
            lines = [line[6:] for line in answer.iter_lines() if line.startswith("data: {")]
        choices = [choice for line in lines for choice in json.loads(line)["choices"]]
    return [choice.get("message") or choice.get("delta") or choice for choice in choices]


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("interval", [1, 4])
@pytest.mark.parametrize("endpoint", ["chat/completions", "completions"])
def test_fastdeploys_clients_find_ids_and_their_text_under_its_names(
    endpoint: str, interval: int, is_streamed: bool, raw: httpx.Client
) -> None:
    body: dict[str, Any] = {
        "model": MODEL,
        "return_token_ids": True,
        "temperature": 0,
        "stream": is_streamed,
        "stream_interval": interval,
        "chat_template_kwargs": {"enable_thinking": True},
        **source_of(endpoint, "The capital of France is"),
    }
    # Completions have no template, and refuse variables for one.
    if endpoint == "completions":
        del body["chat_template_kwargs"]
    returned: dict[str, Any] = {
        "prompt_token_ids": [],
        "completion_token_ids": [],
        "prompt_tokens": "",
        "completion_tokens": "",
    }
    for each in answers(raw, endpoint, body):
        for name in returned:
            returned[name] += each.get(name, type(returned[name])())

    for kind in ("prompt", "completion"):
        ids, text = returned[f"{kind}_token_ids"], returned[f"{kind}_tokens"]
        assert ids
        asked = {"model": MODEL, "tokens": ids}
        assert raw.post("/detokenize", json=asked).json()["prompt"] == text
    assert returned["completion_tokens"].endswith("<|im_end|>")
    assert ("</think>" in returned["completion_tokens"]) == (endpoint == "chat/completions")


@pytest.mark.parametrize("endpoint", ["chat/completions", "completions"])
def test_token_ids_are_returned_only_on_request(endpoint: str, raw: httpx.Client) -> None:
    body = {"model": MODEL, "max_tokens": 2, **source_of(endpoint, "Hi")}
    for is_streamed in (False, True):
        for each in answers(raw, endpoint, {**body, "stream": is_streamed}):
            assert not [name for name in each if "token" in name]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_text_that_ends_inside_a_character_is_complete(
    is_streamed: bool, raw: httpx.Client
) -> None:
    grape = ids_of(raw, "\U0001f347")
    assert len(grape) > 1
    body = {
        "model": MODEL,
        "prompt": "Hi",
        "max_tokens": 1,
        "allowed_token_ids": grape[:1],
        "return_token_ids": True,
        "stream": is_streamed,
    }
    returned = answers(raw, "completions", body)

    assert "".join(each.get("completion_tokens", "") for each in returned) == "\ufffd"
    assert "".join(each["text"] for each in returned) == "\ufffd"


THINKING: dict[str, Any] = {
    "model": MODEL,
    "messages": QUESTION,
    "temperature": 0,
    "chat_template_kwargs": {"enable_thinking": True},
}


@pytest.mark.parametrize("field", ["thinking_token_budget", "reasoning_max_tokens"])
def test_a_budget_of_5_ends_the_reasoning_at_5(field: str, raw: httpx.Client) -> None:
    free = raw.post("/v1/chat/completions", json=THINKING).json()
    held = raw.post("/v1/chat/completions", json={**THINKING, field: 5}).json()

    def reasoning(answer: Any) -> str:
        text: str = answer["choices"][0]["message"]["reasoning"]
        return text

    # The closing tag is a token of reasoning too.
    assert held["usage"]["completion_tokens_details"]["reasoning_tokens"] == 6
    assert reasoning(free).startswith(reasoning(held))
    assert len(reasoning(held)) < len(reasoning(free))
    assert held["choices"][0]["message"]["content"]


def test_a_budget_and_a_schema_go_together(raw: httpx.Client) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    shape = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    body = {**THINKING, "thinking_token_budget": 3, "response_format": shape}
    answer = raw.post("/v1/chat/completions", json=body).json()
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == 4
    assert isinstance(json.loads(answer["choices"][0]["message"]["content"])["a"], int)


def test_effort_none_is_a_budget_of_0(raw: httpx.Client) -> None:
    body = {**THINKING, "thinking_token_budget": 0}
    message = raw.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]
    assert not message.get("reasoning")
    assert message["content"]


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"logit_bias": {"99999": 1}}, "logit_bias", "names the token 99999"),
    ({"logit_bias": {"blue": 1}}, "logit_bias", "token ids as keys"),
    ({"logit_bias": {"5": 101}}, "logit_bias[5]", "at most 100"),
    ({"allowed_token_ids": [3072]}, "allowed_token_ids", "ids go from 0 to"),
    ({"bad_words_token_ids": [[5, 99999]]}, "bad_words_token_ids", "does not have"),
    ({"top_logprobs": 3}, "top_logprobs", "needs `logprobs`"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "at most 20"),
    ({"logprob_token_ids": [5]}, "logprob_token_ids", "Send `logprobs` too"),
    ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs", "when `stream` is true"),
    ({"logits_processors_args": {"a": 1}}, "logits_processors_args", "no logits processors"),
    ({"vllm_xargs": {"a": 1}}, "vllm_xargs", "no logits processors"),
]


@pytest.mark.parametrize(("fields", "param", "words"), REFUSED)
def test_impossible_combinations_are_refused(
    fields: dict[str, Any], param: str, words: str, raw: httpx.Client
) -> None:
    body = {"model": MODEL, "messages": QUESTION, **fields}
    answer = raw.post("/v1/chat/completions", json=body)
    error = answer.json()["error"]
    assert answer.status_code == 400
    assert error["param"] == param
    assert words in error["message"]
