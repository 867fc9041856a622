"""Bodies of popular clients against the whole platform: each answer names the fields without
effect, and the limit that replaces the client's."""

from typing import Any

import httpx
import openai

from .tiny_chat import MODEL, QUESTION

IGNORED = "x-vinery-ignored"
# The tools of Codex, of which this server offers the function and the custom tool to the model.
CODEX_TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}},
    {"type": "custom", "name": "apply", "format": {"type": "text"}},
    {"type": "local_shell"},
    {"type": "web_search", "external_web_access": False},
]


def test_a_body_of_codex_is_answered_and_names_the_tools_that_are_not_there(
    client: openai.OpenAI,
) -> None:
    fields: Any = {"include": ["reasoning.encrypted_content"], "prompt_cache_key": "k"}
    fields |= {"tools": CODEX_TOOLS, "parallel_tool_calls": False, "store": False}
    answer = client.responses.with_raw_response.create(
        model=MODEL, input=QUESTION, stream=True, **fields
    )

    assert answer.headers[IGNORED] == "tools.local_shell, tools.web_search"
    assert [event.type for event in answer.parse()][-1] == "response.completed"


# -- Clients with a default of their own for `max_tokens`, and a model with less context --------

CLAMPED = "x-vinery-clamped"


def test_an_answer_ends_at_its_clamped_limit(raw: httpx.Client) -> None:
    body = {"prompt": [5] * 2000, "max_tokens": 4096, "ignore_eos": True}
    answer = raw.post("/v1/completions", json=body)
    refused = raw.post("/v1/completions", json={**body, "max_tokens": 5000})

    assert answer.headers[CLAMPED] == "max_tokens=48"
    assert answer.json()["usage"]["completion_tokens"] == 48
    assert answer.json()["choices"][0]["finish_reason"] == "length"
    assert refused.json()["error"]["code"] == "context_length_exceeded"
    assert CLAMPED not in refused.headers


def test_streams_and_responses_report_the_name_that_the_client_sent(
    raw: httpx.Client, tree: str
) -> None:
    stream = raw.post(
        f"/{tree}/chat/completions",
        json={"messages": QUESTION, "max_completion_tokens": 8192, "stream": True},
    )
    response = raw.post(f"/{tree}/responses", json={"input": QUESTION, "max_output_tokens": 16_384})

    assert stream.headers[CLAMPED].startswith("max_completion_tokens=20")
    assert response.headers[CLAMPED].startswith("max_output_tokens=20")
    assert response.json()["max_output_tokens"] == 16_384
