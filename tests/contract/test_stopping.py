"""The end of an answer, with the real engine."""

from typing import Any

import httpx

from tests.tables import table

from .tiny_chat import (
    QUESTION,
    WEATHER,
    WEATHER_QUESTION,
    ask,
    ids_of,
    numbers,
    prompt_of,
    refusal,
    text_of,
)

EOS = 2
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}


class Completed:
    def __init__(self, body: dict[str, Any]) -> None:
        self.text = text_of(body)
        self.reason = body["choices"][0]["finish_reason"]
        self.num_tokens = body["usage"]["completion_tokens"]


def complete(raw: httpx.Client, tree: str, to: int = 30, **fields: Any) -> Completed:
    """The answer to a request to count. Among stop tokens, "7" is the token of this text."""
    if fields.get("stop_token_ids") == ["7"]:
        fields["stop_token_ids"] = ids_of(raw, "7")[-1:]
    asked = {"prompt": prompt_of(f"Count to {to}."), "max_tokens": 200, **fields}
    return Completed(ask(raw, f"/{tree}/completions", **asked))


def chat(raw: httpx.Client, tree: str, **fields: Any) -> dict[str, Any]:
    choice: dict[str, Any] = ask(raw, f"/{tree}/chat/completions", **fields)["choices"][0]
    return choice


@table(
    "to, fields, text",
    [
        # A stop is a string or a list, and may span many tokens.
        (30, {"stop": " 7"}, numbers(6)),
        (30, {"stop": [" 7"]}, numbers(6)),
        (30, {"stop": ["nothing", " 7", " 9"]}, numbers(6)),
        (30, {"stop": "8 9 10 1"}, numbers(7) + " "),
        # A stop token is shown on request.
        (30, {"stop_token_ids": ["7"]}, numbers(6) + " "),
        (30, {"stop_token_ids": ["7"], "include_stop_str_in_output": True}, numbers(7)),
        # All of them end an answer that the end token does not.
        (5, {}, numbers(5)),
        (30, {"ignore_eos": True, "stop_token_ids": ["7"]}, numbers(6) + " "),
        (5, {"ignore_eos": True, "stop_token_ids": [EOS]}, numbers(5)),
        (30, {"ignore_eos": True, "stop": " 7"}, numbers(6)),
        # A stop string still ends an answer after `min_tokens`.
        (30, {"stop": [" 7", " 20"], "min_tokens": 20}, numbers(19)),
        # Special tokens are shown unless skipped.
        (5, {"skip_special_tokens": False}, numbers(5) + "<|im_end|>"),
    ],
)
def test_where_an_answer_ends(
    raw: httpx.Client, tree: str, to: int, fields: dict[str, Any], text: str
) -> None:
    answer = complete(raw, tree, to, **fields)

    assert (answer.text, answer.reason) == (text, "stop")


def test_a_shown_stop_token_is_counted_as_a_hidden_one(raw: httpx.Client, tree: str) -> None:
    hidden = complete(raw, tree, stop_token_ids=["7"])
    shown = complete(raw, tree, stop_token_ids=["7"], include_stop_str_in_output=True)

    assert hidden.num_tokens == shown.num_tokens


def test_the_model_continues_with_ignore_eos(raw: httpx.Client, tree: str) -> None:
    going = complete(raw, tree, to=5, ignore_eos=True, max_tokens=60)

    assert (going.num_tokens, going.reason) == (60, "length")
    assert going.text.startswith(numbers(5))
    assert len(going.text) > len(numbers(5))


def test_a_stop_string_ends_the_answer_and_not_the_reasoning(raw: httpx.Client, tree: str) -> None:
    choice = chat(raw, tree, messages=QUESTION, reasoning_effort="high", stop=["France"])

    assert "France" in choice["message"]["reasoning_content"]
    assert choice["message"]["content"] == "The capital of "
    assert choice["finish_reason"] == "stop"


def test_a_stop_string_does_not_cut_the_arguments_of_a_call(raw: httpx.Client, tree: str) -> None:
    choice = chat(raw, tree, messages=WEATHER_QUESTION, tools=[WEATHER], stop=["Paris"])

    assert choice["finish_reason"] == "tool_calls"
    assert "Paris" in choice["message"]["tool_calls"][0]["function"]["arguments"]


def test_min_tokens_holds_against_every_kind_of_end(raw: httpx.Client, tree: str) -> None:
    fields: Any
    for fields in (
        {"to": 5},
        {"to": 30, "stop": " 7"},
        {"to": 30, "stop_token_ids": ["7"]},
        {"to": 5, "ignore_eos": True, "stop_token_ids": [EOS]},
    ):
        assert complete(raw, tree, **fields).num_tokens < 30
        assert complete(raw, tree, **fields, min_tokens=30, max_tokens=60).num_tokens >= 30


def test_the_text_is_not_parsed_with_special_tokens(raw: httpx.Client, tree: str) -> None:
    asked: Any = {"messages": WEATHER_QUESTION, "skip_special_tokens": False}
    choice = chat(raw, tree, **asked, tools=[WEATHER])
    reasoning_choice = chat(raw, tree, **asked, reasoning_effort="high")

    assert choice["message"]["content"].startswith("<tool_call>\n{")
    assert "tool_calls" not in choice["message"]
    assert choice["finish_reason"] == "stop"
    assert "</think>" in reasoning_choice["message"]["content"]
    assert "reasoning_content" not in reasoning_choice["message"]


@table("param, value", [("min_tokens", 5), ("ignore_eos", True)])
def test_a_complete_message_cannot_be_continued(
    raw: httpx.Client, tree: str, param: str, value: Any
) -> None:
    asked: Any = {"messages": WEATHER_QUESTION, "response_format": SCHEMA, param: value}

    assert refusal(raw, f"/{tree}/chat/completions", **asked)["param"] == param


def test_responses_read_the_same_rules(raw: httpx.Client, tree: str) -> None:
    def respond(**fields: Any) -> tuple[str, str, int]:
        asked = {"input": "Count to 5.", "max_output_tokens": 25, **fields}
        answer = ask(raw, f"/{tree}/responses", **asked)
        return text_of(answer), answer["status"], answer["usage"]["output_tokens"]

    text, status, num_tokens = respond()
    assert (text, status) == (numbers(5), "completed")
    assert num_tokens < 20

    assert respond(min_tokens=20)[2] >= 20
    assert respond(ignore_eos=True)[1:] == ("incomplete", 25)
    assert respond(stop_token_ids=[ids_of(raw, "3")[-1]])[:2] == (numbers(2) + " ", "completed")
