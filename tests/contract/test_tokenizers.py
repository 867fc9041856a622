"""`/tokenize`, `/detokenize` and `/version` with the bodies of vLLM's and OVMS's clients."""

from typing import Any

import httpx

from tests.conftest import Running
from tests.tables import table
from vinery_platform import __version__

from .tiny_chat import CONTEXT, QUESTION, ask

every_root = table("root", ["", "/v1", "/v3"])


@every_root
def test_a_prompt_gets_its_tokens_and_the_context_length(raw: httpx.Client, root: str) -> None:
    body = ask(raw, f"{root}/tokenize", prompt="Hello there")
    with_strings = ask(raw, f"{root}/tokenize", prompt="Hello there", return_token_strs=True)

    assert body["count"] == len(body["tokens"]) == 2
    assert body["max_model_len"] == CONTEXT
    assert body["token_strs"] is None
    assert with_strings["token_strs"] == ["Hello", "Ġthere"], "as in the vocabulary"


@every_root
@table("text", ["Grüße 🙂", "<|im_start|>user\n", "", " \n"])
def test_detokenize_returns_the_tokenized_text(raw: httpx.Client, root: str, text: str) -> None:
    tokens = ask(raw, f"{root}/tokenize", prompt=text)["tokens"]

    assert ask(raw, f"{root}/detokenize", tokens=tokens) == {"prompt": text}


@every_root
def test_a_chat_has_the_tokens_of_its_rendered_prompt(raw: httpx.Client, root: str) -> None:
    tool = {"type": "function", "function": {"name": "f", "description": "d"}}
    for fields in ({}, {"tools": [tool]}, {"chat_template_kwargs": {"enable_thinking": True}}):
        counted = ask(raw, f"{root}/tokenize", messages=QUESTION, **fields)
        answer = ask(raw, "/v1/chat/completions", messages=QUESTION, max_tokens=1, **fields)

        assert answer["usage"]["prompt_tokens"] == counted["count"]

    opened = ask(raw, f"{root}/tokenize", messages=QUESTION)["tokens"]
    bare = ask(raw, f"{root}/tokenize", messages=QUESTION, add_generation_prompt=False)["tokens"]
    assert opened[: len(bare)] == bare
    assert len(bare) < len(opened)


@every_root
def test_ovms_asks_with_text_and_a_long_one_is_read_whole(raw: httpx.Client, root: str) -> None:
    one = ask(raw, f"{root}/tokenize", text="hello world")
    padding: Any = {"max_length": 2, "pad_to_max_length": True, "padding_side": "left"}
    many = ask(raw, f"{root}/tokenize", text=["hello", "hello hello hello"], **padding)

    assert set(one) == {"tokens"}
    assert len(one["tokens"]) > 1
    assert [len(tokens) for tokens in many["tokens"]] == [2, 2]
    assert many["tokens"][0][0] == 0  # <|endoftext|>
    assert ask(raw, f"{root}/tokenize", prompt="hello " * 50_000)["count"] > 50_000


def test_the_version_is_open_to_all(running: Running) -> None:
    assert httpx.get(f"{running.base_url}/version").json() == {"version": __version__}
