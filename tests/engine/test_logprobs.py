"""Log-probabilities of a row, against the definition in double precision."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from vinery_serving.engine.logits_handler import RowLogprobs, top_ids
from vinery_serving.transport.messages import LogprobsSpec

numbers = st.floats(-60, 60, width=32)
rows = hnp.arrays(np.float32, st.integers(2, 300), elements=numbers, fill=st.nothing())
# Long enough for the search by blocks, with many equal values.
long_rows = hnp.arrays(np.float32, st.integers(6000, 9000), elements=st.sampled_from([-1, 0, 3, 7]))
DISTINCT = np.random.default_rng(1).normal(0, 9, 6007).astype(np.float32)  # and with a rest


def exact(row: np.ndarray[tuple[int], np.dtype[np.float32]]) -> np.ndarray[tuple[int], np.dtype]:
    wide = row.astype(np.float64)
    return wide - (wide.max() + np.log(np.exp(wide - wide.max()).sum()))


@given(rows, st.data())
def test_a_token_has_the_log_of_its_probability_and_the_rank_counts_likelier_ones(row, data):
    token_id = data.draw(st.integers(0, len(row) - 1))
    result = RowLogprobs(row, LogprobsSpec()).of(token_id)
    assert result.logprob == pytest.approx(exact(row)[token_id], abs=1e-3)
    assert result.rank == 1 + sum(value > row[token_id] for value in row)


@example(DISTINCT, 20)
@given(st.one_of(rows, long_rows), st.integers(0, 20))
def test_the_best_are_those_of_a_full_sort(row: np.ndarray, num: int) -> None:
    assert top_ids(row, num) == np.argsort(-row, kind="stable")[:num].tolist()


def test_named_tokens_a_temperature_and_a_nucleus_are_as_requested() -> None:
    row = np.array([5, 1, 4, 2], np.float32)
    result = RowLogprobs(row, LogprobsSpec(num_top=2, token_ids=(1, 0))).of(3)
    assert [id_ for id_, _ in result.others] == [0, 2, 1]

    row = np.array([1, 2, 3], np.float32)
    logprobs = RowLogprobs(row, LogprobsSpec(num_top=1))
    before = logprobs.of(0)
    row[:] = 0  # as the caller may
    assert logprobs.of(0) == before

    row = np.array([1, 2, 3], np.float32)
    result = RowLogprobs(row, LogprobsSpec(temperature=0.5)).of(1)
    assert result.logprob == pytest.approx(exact(row * 2)[1])

    row = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    logprobs = RowLogprobs(row, LogprobsSpec(num_top=4, top_p=0.8))
    shares = [np.exp(logprob) for _, logprob in logprobs.of(0).others]
    assert shares == pytest.approx([0.625, 0.375, 0, 0])

    row = np.array([0, -np.inf], np.float32)
    assert RowLogprobs(row, LogprobsSpec()).of(1).logprob == -9999.0, "JSON has no infinity"


@example(DISTINCT, 0.99)
@example(np.repeat(np.array([7, -1], np.float32), [4, 5996]), 0.875)
@given(st.one_of(rows, long_rows), st.floats(0.01, 0.99))
def test_a_nucleus_is_the_smallest_set_with_its_probability(row: np.ndarray, top_p: float) -> None:
    shares = np.exp(exact(row))
    order = np.argsort(-row, kind="stable")
    whole = RowLogprobs(row, LogprobsSpec(num_top=len(row), top_p=top_p)).of(0)
    kept = [id_ for id_, logprob in whole.others if logprob != -9999.0]
    assert kept == order[: len(kept)].tolist()
    assert shares[kept].sum() >= top_p - 1e-4
    assert shares[kept[:-1]].sum() <= top_p + 1e-4
