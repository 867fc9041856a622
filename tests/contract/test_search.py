"""The best of several answers, over HTTP: sampled candidates, and beam search."""

from typing import Any

import httpx

from tests.tables import table

from .tiny_chat import ask, prompt_of

STORY = prompt_of("Tell me a story.")


def complete(raw: httpx.Client, tree: str, **fields: Any) -> Any:
    return ask(raw, f"/{tree}/completions", **{"prompt": STORY, "max_tokens": 12, **fields})


def mean_logprob(choice: Any) -> float:
    logprobs: list[float] = choice["logprobs"]["token_logprobs"]
    return sum(logprobs) / len(logprobs)


def test_openais_best_of_returns_the_most_likely_samples(raw: httpx.Client) -> None:
    options = {"seed": 11, "temperature": 1.4, "logprobs": 0}
    drawn = complete(raw, "v1", n=5, **options)["choices"]
    best = complete(raw, "v1", n=2, best_of=5, **options)["choices"]

    ranked = sorted(drawn, key=mean_logprob, reverse=True)
    assert [choice["index"] for choice in best] == [0, 1]
    assert [choice["text"] for choice in best] == [choice["text"] for choice in ranked[:2]]


def test_all_candidates_are_counted_and_only_the_best_are_numbered(raw: httpx.Client) -> None:
    answer = complete(raw, "v1", best_of=4, temperature=1.4, ignore_eos=True)
    assert answer["usage"]["completion_tokens"] == 4 * 12
    assert answer["choices"][0]["logprobs"] is None
    assert len(answer["choices"]) == 1
    choices = complete(raw, "v1", prompt=[STORY, "count"], n=1, best_of=3)["choices"]
    assert [choice["index"] for choice in choices] == [0, 1]


@table(
    "tree, fields",
    [
        ("v3", {"best_of": 4, "n": 3}),
        ("v1", {"use_beam_search": True, "n": 3}),
        ("v1", {"use_beam_search": True, "best_of": 4, "n": 3, "length_penalty": 0.5}),
        ("v3", {"best_of": 4, "n": 3, "early_stopping": True}),
        ("v3", {"best_of": 4, "n": 3, "early_stopping": "never"}),
    ],
)
def test_beams_find_the_same_different_answers_every_time(
    tree: str, fields: dict[str, Any], raw: httpx.Client
) -> None:
    first, second = (complete(raw, tree, **fields)["choices"] for _ in range(2))
    assert [choice["text"] for choice in first] == [choice["text"] for choice in second]
    assert len({choice["text"] for choice in first}) == 3
