"""Samples beside a draft model: the largest value of a prepared row is the sampled token."""

from collections import Counter

import numpy as np
import pytest

from tests.tables import table
from vinery_serving.core.request import Sampling
from vinery_serving.engine.logits_handler import TokenSampler

LOGITS = np.log(np.array([0.4, 0.3, 0.2, 0.1], dtype=np.float32))


def draws(num: int = 1000, logits: np.ndarray = LOGITS, **values: float) -> dict[int, float]:
    """Return how often each token was drawn, as a part of all draws."""
    counts = Counter(draw(logits, seed=seed, **values) for seed in range(num))
    return {token_id: num_drawn / num for token_id, num_drawn in counts.items()}


def draw(logits: np.ndarray = LOGITS, tokens: tuple[int, ...] = (), **values: float) -> int:
    row = logits.copy()
    sampling = Sampling(**({"temperature": 1.0} | values))  # type: ignore[arg-type]
    TokenSampler(sampling).prepare(row, tokens)
    return int(row.argmax())


ROOTS = np.sqrt([0.4, 0.3, 0.2, 0.1])


@table(
    "values, expected",
    [
        ({}, [0.4, 0.3, 0.2, 0.1]),
        ({"temperature": 2.0}, ROOTS / ROOTS.sum()),
        ({"top_k": 2}, [4 / 7, 3 / 7]),  # what is left adds up to one
    ],
)
def test_tokens_are_drawn_by_their_probabilities(values, expected):
    assert draws(4000, **values) == pytest.approx(dict(enumerate(expected)), abs=0.03)


@table(
    "values, expected",
    [
        ({"top_k": 1}, {0}),
        ({"top_k": 2}, {0, 1}),
        ({"top_k": 9}, {0, 1, 2, 3}),
        ({"top_p": 0.39}, {0}),
        ({"top_p": 0.6}, {0, 1}),
        ({"top_p": 0.95}, {0, 1, 2, 3}),
        ({"min_p": 0.6}, {0, 1}),
        ({"min_p": 1.0}, {0}),
        ({"min_p": 0.3, "top_k": 2}, {0, 1}),
    ],
)
def test_only_the_likely_tokens_are_drawn(values: dict[str, float], expected: set[int]) -> None:
    assert set(draws(**values)) == expected


def test_a_draw_depends_on_penalties_what_is_forbidden_the_seed_and_the_number_of_tokens() -> None:
    tokens, row = (1, 1, 2), LOGITS.copy()
    sampling = Sampling(temperature=1.0, presence_penalty=0.5, frequency_penalty=0.25)
    plain = LOGITS.copy()
    TokenSampler(Sampling(temperature=1.0)).prepare(plain, tokens)

    TokenSampler(sampling).prepare(row, tokens)

    assert row - plain == pytest.approx([0, -1.0, -0.75, 0], abs=1e-5)

    logits = LOGITS.copy()
    logits[0] = -np.inf
    assert set(draws(logits=logits)) == {1, 2, 3}

    row = LOGITS.copy()
    TokenSampler(Sampling(temperature=1.0, top_k=1)).prepare(row, ())
    row[:3] = -np.inf
    assert np.isfinite(row[3])

    by_seed = [draw(seed=seed) for seed in range(50)]
    by_number = [draw(tokens=(0,) * num) for num in range(50)]
    assert by_seed == [draw(seed=seed) for seed in range(50)]
    assert by_seed != by_number
    assert len(set(by_seed)) == len(set(by_number)) == 4
    assert {draw(seed=seed) for seed in (0, -1, 2**63, 2**64 - 1)} <= set(range(4))
