"""`/tokenize`, `/detokenize` and `/version` with the bodies of vLLM's and OVMS's clients."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.conftest import Running
from tests.contract.tiny_chat import MODEL, QUESTION
from vinery import __version__

pytestmark = pytest.mark.system

ROOTS = ["", "/v1", "/v3"]


@pytest.fixture(params=ROOTS, ids=["root", "v1", "v3"])
def root(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def asked(raw: httpx.Client, path: str, **fields: Any) -> dict[str, Any]:
    response = raw.post(path, json={"model": MODEL, **fields})
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def test_a_prompt_gets_its_tokens_and_the_context_length(raw: httpx.Client, root: str) -> None:
    body = asked(raw, f"{root}/tokenize", prompt="Hello there")

    assert body["count"] == len(body["tokens"]) == 2
    assert body["max_model_len"] == 2048
    assert body["token_strs"] is None


def test_the_token_strings_are_those_of_the_vocabulary(raw: httpx.Client, root: str) -> None:
    body = asked(raw, f"{root}/tokenize", prompt="Hello there", return_token_strs=True)

    assert body["token_strs"] == ["Hello", "Ġthere"]


@pytest.mark.parametrize("text", ["Grüße 🙂", "<|im_start|>user\n", "", " \n"])
def test_detokenize_returns_the_tokenized_text(raw: httpx.Client, root: str, text: str) -> None:
    tokens = asked(raw, f"{root}/tokenize", prompt=text)["tokens"]

    assert asked(raw, f"{root}/detokenize", tokens=tokens) == {"prompt": text}


def test_a_chat_has_the_tokens_of_its_rendered_prompt(raw: httpx.Client, root: str) -> None:
    tool = {"type": "function", "function": {"name": "f", "description": "d"}}
    for fields in ({}, {"tools": [tool]}, {"chat_template_kwargs": {"enable_thinking": True}}):
        counted = asked(raw, f"{root}/tokenize", messages=QUESTION, **fields)
        answer = asked(raw, "/v1/chat/completions", messages=QUESTION, max_tokens=1, **fields)

        assert answer["usage"]["prompt_tokens"] == counted["count"]


def test_a_chat_can_be_counted_without_the_start_of_an_answer(raw: httpx.Client, root: str) -> None:
    opened = asked(raw, f"{root}/tokenize", messages=QUESTION)["tokens"]
    bare = asked(raw, f"{root}/tokenize", messages=QUESTION, add_generation_prompt=False)["tokens"]

    assert opened[: len(bare)] == bare
    assert len(bare) < len(opened)


def test_ovms_asks_with_text(raw: httpx.Client, root: str) -> None:
    one = asked(raw, f"{root}/tokenize", text="hello world")
    many = asked(
        raw,
        f"{root}/tokenize",
        text=["hello", "hello hello hello"],
        max_length=2,
        pad_to_max_length=True,
        padding_side="left",
    )

    assert set(one) == {"tokens"}
    assert len(one["tokens"]) > 1
    assert [len(tokens) for tokens in many["tokens"]] == [2, 2]
    assert many["tokens"][0][0] == 0  # <|endoftext|>


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("tokenize", {}, "prompt"),
        ("tokenize", {"prompt": 5}, "prompt"),
        ("tokenize", {"messages": []}, "messages"),
        ("tokenize", {"messages": QUESTION, "chat_template": "x"}, "chat_template"),
        ("detokenize", {}, "tokens"),
        ("detokenize", {"tokens": [99999]}, "tokens"),
    ],
)
def test_an_impossible_search_is_refused_by_name(
    raw: httpx.Client, root: str, path: str, body: dict[str, Any], param: str
) -> None:
    response = raw.post(f"{root}/{path}", json=body)

    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


@pytest.mark.parametrize("path", ["tokenize", "detokenize"])
def test_the_tokenizer_endpoints_have_the_usual_errors(
    running: Running, raw: httpx.Client, root: str, path: str
) -> None:
    url = f"{running.base_url}{root}/{path}"

    assert httpx.post(url, json={}).status_code == 401
    assert httpx.post(url, json={}).headers["x-request-id"]
    assert raw.get(f"{root}/{path}").status_code == 405
    unknown = raw.post(f"{root}/{path}", json={"model": "none", "prompt": "a", "tokens": []})
    assert unknown.status_code == 404
    assert unknown.json()["error"]["code"] == "model_not_found"
    assert raw.options(f"{root}/{path}").status_code == 204


def test_a_long_text_is_tokenized_whole(raw: httpx.Client, root: str) -> None:
    body = asked(raw, f"{root}/tokenize", prompt="hello " * 50_000)

    assert body["count"] > 50_000


def test_the_version_is_open_to_all(running: Running) -> None:
    assert httpx.get(f"{running.base_url}/version").json() == {"version": __version__}
