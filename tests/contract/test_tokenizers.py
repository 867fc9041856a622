"""`/tokenize`, `/detokenize` and `/version` as vLLM's and OVMS's clients ask for them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.conftest import Running
from tests.contract.tiny_chat import MODEL, QUESTION
from vinery import __version__

pytestmark = pytest.mark.system

PLACES = ["", "/v1", "/v3"]


@pytest.fixture(params=PLACES, ids=["root", "v1", "v3"])
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def asked(raw: httpx.Client, path: str, **fields: Any) -> dict[str, Any]:
    response = raw.post(path, json={"model": MODEL, **fields})
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def test_a_prompt_gets_its_tokens_and_how_many_there_may_be(raw: httpx.Client, place: str) -> None:
    body = asked(raw, f"{place}/tokenize", prompt="Hello there")

    assert body["count"] == len(body["tokens"]) == 2
    assert body["max_model_len"] == 2048
    assert body["token_strs"] is None


def test_the_tokens_names_are_those_of_the_vocabulary(raw: httpx.Client, place: str) -> None:
    body = asked(raw, f"{place}/tokenize", prompt="Hello there", return_token_strs=True)

    assert body["token_strs"] == ["Hello", "Ġthere"]


@pytest.mark.parametrize("text", ["Grüße 🙂", "<|im_start|>user\n", "", " \n"])
def test_a_text_comes_back(raw: httpx.Client, place: str, text: str) -> None:
    tokens = asked(raw, f"{place}/tokenize", prompt=text)["tokens"]

    assert asked(raw, f"{place}/detokenize", tokens=tokens) == {"prompt": text}


def test_a_chat_has_the_tokens_that_it_would_be_answered_with(
    raw: httpx.Client, place: str
) -> None:
    tool = {"type": "function", "function": {"name": "f", "description": "d"}}
    for fields in ({}, {"tools": [tool]}, {"chat_template_kwargs": {"enable_thinking": True}}):
        counted = asked(raw, f"{place}/tokenize", messages=QUESTION, **fields)
        answer = asked(raw, "/v1/chat/completions", messages=QUESTION, max_tokens=1, **fields)

        assert answer["usage"]["prompt_tokens"] == counted["count"]


def test_a_chat_can_be_counted_without_the_opening_of_an_answer(
    raw: httpx.Client, place: str
) -> None:
    opened = asked(raw, f"{place}/tokenize", messages=QUESTION)["tokens"]
    bare = asked(raw, f"{place}/tokenize", messages=QUESTION, add_generation_prompt=False)["tokens"]

    assert opened[: len(bare)] == bare
    assert len(bare) < len(opened)


def test_ovms_asks_with_text(raw: httpx.Client, place: str) -> None:
    one = asked(raw, f"{place}/tokenize", text="hello world")
    many = asked(
        raw,
        f"{place}/tokenize",
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
def test_what_cannot_be_answered_is_refused_by_name(
    raw: httpx.Client, place: str, path: str, body: dict[str, Any], param: str
) -> None:
    response = raw.post(f"{place}/{path}", json=body)

    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


@pytest.mark.parametrize("path", ["tokenize", "detokenize"])
def test_the_doors_are_those_of_the_other_endpoints(
    running: Running, raw: httpx.Client, place: str, path: str
) -> None:
    url = f"{running.base_url}{place}/{path}"

    assert httpx.post(url, json={}).status_code == 401
    assert httpx.post(url, json={}).headers["x-request-id"]
    assert raw.get(f"{place}/{path}").status_code == 405
    unknown = raw.post(f"{place}/{path}", json={"model": "none", "prompt": "a", "tokens": []})
    assert unknown.status_code == 404
    assert unknown.json()["error"]["code"] == "model_not_found"
    assert raw.options(f"{place}/{path}").status_code == 204


def test_a_long_text_is_tokenized_whole(raw: httpx.Client, place: str) -> None:
    body = asked(raw, f"{place}/tokenize", prompt="hello " * 50_000)

    assert body["count"] > 50_000


def test_the_version_is_open_to_all(running: Running) -> None:
    assert httpx.get(f"{running.base_url}/version").json() == {"version": __version__}
