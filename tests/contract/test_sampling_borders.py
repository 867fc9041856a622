"""The bounds of sampling parameters are accepted and take effect."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.system

TREES = ["v1", "v3"]
STORY = (
    "<|im_start|>user\nTell me a story.<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
ASKED: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": [{"role": "user", "content": "Tell me a story."}]},
    "completions": {"prompt": STORY},
    "responses": {"input": "Tell me a story."},
}
ONLY_THE_LIKELIEST: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 5e-324},
    {"temperature": 1e-45},
    {"temperature": 2, "top_p": 0},
    {"temperature": 2, "top_p": 5e-324},
    {"temperature": 2, "min_p": 1},
    {"temperature": 2, "min_p": 1.0},
    {"temperature": 2, "min_p": 0.9999999999},
    {"temperature": 2, "top_k": 1},
]


def text_of(raw: httpx.Client, tree: str, endpoint: str, **fields: Any) -> str:
    body = {"model": "tiny-chat", "max_tokens": 16, **ASKED[endpoint], **fields}
    answer = raw.post(f"/{tree}/{endpoint}", json=body)
    assert answer.status_code == 200, answer.text
    returned = answer.json()
    match endpoint:
        case "chat/completions":
            return str(returned["choices"][0]["message"]["content"])
        case "completions":
            return str(returned["choices"][0]["text"])
        case _:
            return str(returned["output"][0]["content"][0]["text"])


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("endpoint", ASKED)
def test_responses_have_three_ways_to_ask_for_logprobs(
    raw: httpx.Client, tree: str, endpoint: str
) -> None:
    texts = {
        text_of(raw, tree, endpoint, seed=seed, **fields)
        for fields in ONLY_THE_LIKELIEST
        for seed in (1, 2)
    }

    assert len(texts) == 1
    others = {text_of(raw, tree, endpoint, temperature=2, seed=seed) for seed in range(5)}
    assert len(others | texts) > 2


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("endpoint", ASKED)
@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 2.0},
        {"top_p": 1.0},
        {"min_p": 0},
        {"top_k": -1},
        {"top_k": 0},
        {"top_k": 2**31 - 1},
        {"repetition_penalty": 0.01},
        {"repetition_penalty": 1000},
        {"frequency_penalty": -2, "presence_penalty": 2},
        {"frequency_penalty": 2, "presence_penalty": -2},
        {"seed": -(2**63)},
        {"seed": 2**63 - 1},
        {"min_tokens": 16},
    ],
    ids=str,
)
def test_a_bound_of_a_range_is_accepted_and_takes_effect(
    raw: httpx.Client, tree: str, endpoint: str, fields: dict[str, Any]
) -> None:
    assert text_of(raw, tree, endpoint, **fields)
