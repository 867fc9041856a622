"""The bounds of sampling parameters are accepted and take effect."""

from typing import Any

import httpx

from tests.tables import table

from .conftest import TREES
from .tiny_chat import OPENAI, ask, asking, text_of

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


def written(raw: httpx.Client, tree: str, endpoint: str, **fields: Any) -> str:
    asked = {"max_tokens": 16, **asking(endpoint, "Tell me a story."), **fields}
    return text_of(ask(raw, f"/{tree}/{endpoint}", **asked))


@table("tree", TREES)
@table("endpoint", OPENAI)
def test_the_lowest_temperatures_and_the_narrowest_choices_leave_the_likeliest_text(
    raw: httpx.Client, tree: str, endpoint: str
) -> None:
    texts = {
        written(raw, tree, endpoint, seed=seed, **fields)
        for fields in ONLY_THE_LIKELIEST
        for seed in (1, 2)
    }

    assert len(texts) == 1
    others = {written(raw, tree, endpoint, temperature=2, seed=seed) for seed in range(5)}
    assert len(others | texts) > 2
