"""The requests of lm-evaluation-harness, and its parsing of the answers.

The harness' `local-completions` scores a continuation by sending context and continuation as one
prompt, and relies on two facts: exactly one token follows the prompt, and the most likely token of
each position is returned.
"""

from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter

from tests.tables import table
from vinery_serving.protocols.stored import TokenizerInfo

from .tiny_chat import CONTEXT, MODEL, ask, ids_of

SEED = 1234
START = "The capital of France is"


def scored(raw: httpx.Client, prompt: Any, *, tree: str = "v1") -> list[Any]:
    fields = {"temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": SEED, "echo": True}
    answer = ask(raw, f"/{tree}/completions", prompt=prompt, **fields)
    choices = sorted(answer["choices"], key=lambda choice: int(choice["index"]))
    return [choice["logprobs"] for choice in choices]


def likelihood(logprobs: Any, num_context_tokens: int) -> tuple[float, bool]:
    """Return the sum for the continuation, and whether the continuation is greedy."""
    returned = logprobs["token_logprobs"][num_context_tokens:-1]
    top = logprobs["top_logprobs"][num_context_tokens:-1]
    return sum(returned), all(
        max(by.values()) == own for own, by in zip(returned, top, strict=True)
    )


def one_by_one(raw: httpx.Client, ids: list[int], num_context_tokens: int) -> float:
    """Return the same sum, by generating each token of the continuation."""
    total = 0.0
    for at in range(num_context_tokens, len(ids)):
        fields = {"max_tokens": 1, "logprobs": 0, "allowed_token_ids": [ids[at]]}
        answer = ask(raw, "/v1/completions", prompt=ids[:at], **fields)
        total += answer["choices"][0]["logprobs"]["token_logprobs"][0]
    return total


def test_a_batch_of_token_ids_is_scored_as_the_model_would_write_it(
    raw: httpx.Client, tree: str
) -> None:
    context = ids_of(raw, START)
    prompts = [context + ids_of(raw, end) for end in (" Paris", " Rome", " Paris.", " blue sky")]
    sums = [likelihood(each, len(context)) for each in scored(raw, prompts, tree=tree)]

    for (total, _), prompt in zip(sums, prompts, strict=True):
        assert total == pytest.approx(one_by_one(raw, prompt, len(context)), abs=0.02)
    assert [is_greedy for _, is_greedy in sums] == [True, False, True, False]
    assert sums[0] > sums[1] > sums[3]


def test_a_scored_prompt_has_one_generated_token(raw: httpx.Client, tree: str) -> None:
    prompts = [ids_of(raw, f"{START}{end}") for end in ("", " Paris", " Paris.")]
    for prompt, returned in zip(prompts, scored(raw, prompts, tree=tree), strict=True):
        lengths = {name: len(column) for name, column in returned.items()}
        assert set(lengths.values()) == {len(prompt) + 1}, lengths
    assert returned["tokens"][-1] == "<|im_end|>"
    assert returned["text_offset"][-1] == len(f"{START} Paris.")


@table("root", ["", "/v1", "/v3"])
def test_tokenizer_info_describes_the_tokenizer(raw: httpx.Client, root: str) -> None:
    answer = raw.get(f"{root}/tokenizer_info")
    assert answer.status_code == 200, answer.text
    info = answer.json()
    assert info["eos_token"] == "<|im_end|>"
    assert info["bos_token"] is None
    assert info["pad_token"] == "<|endoftext|>"
    assert info["model_max_length"] == CONTEXT
    assert info["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert info["added_tokens_decoder"]["2"]["content"] == "<|im_end|>"
    assert info["added_tokens_decoder"]["2"]["special"] is True
    TypeAdapter(TokenizerInfo).validate_json(answer.content)
    assert "<|im_start|>" in info["chat_template"]
    assert raw.get(f"{root}/tokenizer_info", params={"model": MODEL}).json() == info
