"""The end of an answer, with the real engine."""

from typing import Any

import httpx

from tests.tables import table

from . import tiny_chat as tiny

EOS = 2


class Completed:
    def __init__(self, body: dict[str, Any]) -> None:
        self.text = tiny.text_of(body)
        self.reason = body["choices"][0]["finish_reason"]
        self.num_tokens = body["usage"]["completion_tokens"]


def complete(raw: httpx.Client, tree: str, to: int = 30, **fields: Any) -> Completed:
    """The answer to a request to count. Among stop tokens, "7" is the token of this text."""
    if fields.get("stop_token_ids") == ["7"]:
        fields["stop_token_ids"] = tiny.ids_of(raw, "7")[-1:]
    asked = {"prompt": tiny.prompt_of(f"Count to {to}."), "max_tokens": 200, **fields}
    return Completed(tiny.ask(raw, f"/{tree}/completions", **asked))


def chat(raw: httpx.Client, tree: str, **fields: Any) -> dict[str, Any]:
    choice: dict[str, Any] = tiny.ask(raw, f"/{tree}/chat/completions", **fields)["choices"][0]
    return choice


@table(
    "to, fields, text",
    [
        # A stop is a string or a list, and may span many tokens.
        (30, {"stop": " 7"}, tiny.numbers(6)),
        (30, {"stop": [" 7"]}, tiny.numbers(6)),
        (30, {"stop": ["nothing", " 7", " 9"]}, tiny.numbers(6)),
        (30, {"stop": "8 9 10 1"}, tiny.numbers(7) + " "),
        # A stop token is shown on request.
        (30, {"stop_token_ids": ["7"]}, tiny.numbers(6) + " "),
        (30, {"stop_token_ids": ["7"], "include_stop_str_in_output": True}, tiny.numbers(7)),
        # All of them end an answer that the end token does not.
        (5, {}, tiny.numbers(5)),
        (30, {"ignore_eos": True, "stop_token_ids": ["7"]}, tiny.numbers(6) + " "),
        (5, {"ignore_eos": True, "stop_token_ids": [EOS]}, tiny.numbers(5)),
        (30, {"ignore_eos": True, "stop": " 7"}, tiny.numbers(6)),
        # A stop string still ends an answer after `min_tokens`.
        (30, {"stop": [" 7", " 20"], "min_tokens": 20}, tiny.numbers(19)),
        # Special tokens are shown unless skipped.
        (5, {"skip_special_tokens": False}, tiny.numbers(5) + "<|im_end|>"),
    ],
)
def test_where_an_answer_ends(
    raw: httpx.Client, tree: str, to: int, fields: dict[str, Any], text: str
) -> None:
    answer = complete(raw, tree, to, **fields)

    assert (answer.text, answer.reason) == (text, "stop")


def test_the_text_is_not_parsed_with_special_tokens(raw: httpx.Client, tree: str) -> None:
    asked: Any = {"messages": tiny.WEATHER_QUESTION, "skip_special_tokens": False}
    choice = chat(raw, tree, **asked, tools=[tiny.WEATHER])
    reasoning_choice = chat(raw, tree, **asked, reasoning_effort="high")

    assert choice["message"]["content"].startswith("<tool_call>\n{")
    assert "tool_calls" not in choice["message"]
    assert choice["finish_reason"] == "stop"
    assert "</think>" in reasoning_choice["message"]["content"]
    assert "reasoning_content" not in reasoning_choice["message"]
