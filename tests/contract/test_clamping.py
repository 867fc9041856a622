"""Clients with a default of their own for `max_tokens`, and a model with less context."""

from __future__ import annotations

import httpx
import openai
import pytest

from tests.tables import table

from .tiny_chat import CONTEXT, MODEL, PARIS, QUESTION

CLAMPED = "x-vinery-clamped"


@table("max_tokens", [4096, 32_000, 128_000])
def test_a_default_of_a_client_is_clamped_and_the_answer_reports_it(
    client: openai.OpenAI, max_tokens: int
) -> None:
    answer = client.chat.completions.with_raw_response.create(
        model=MODEL, messages=QUESTION, max_tokens=max_tokens
    )
    chat = answer.parse()

    assert chat.choices[0].message.content == PARIS
    assert chat.choices[0].finish_reason == "stop"
    assert chat.usage is not None
    assert answer.headers[CLAMPED] == f"max_tokens={CONTEXT - chat.usage.prompt_tokens}"


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


def test_an_answer_that_reaches_the_clamped_limit_ends_with_length(raw: httpx.Client) -> None:
    body = {"prompt": [5] * 2000, "max_tokens": 4096, "ignore_eos": True}
    answer = raw.post("/v1/completions", json=body)

    assert answer.headers[CLAMPED] == "max_tokens=48"
    assert answer.json()["usage"]["completion_tokens"] == 48
    assert answer.json()["choices"][0]["finish_reason"] == "length"


def test_another_number_is_refused_as_before(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=5000)

    assert refused.value.code == "context_length_exceeded"
    assert CLAMPED not in refused.value.response.headers


def test_a_limit_that_fits_has_no_header(client: openai.OpenAI) -> None:
    answer = client.chat.completions.with_raw_response.create(
        model=MODEL, messages=QUESTION, max_tokens=100
    )

    assert CLAMPED not in answer.headers
