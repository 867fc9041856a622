"""How a request changes a row of logits and samples from it, and the report of its tokens."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.tables import table
from vinery_serving.core.request import Sampling
from vinery_serving.engine.logits_handler import (
    LogitsEditor,
    RowLogprobs,
    TokenSampler,
    check_ids,
    load_factories,
    new_processors,
    penalize,
    top_ids,
)
from vinery_serving.transport.messages import LogitsSpec, LogprobsSpec, ReasoningBudget

OUT = -np.inf


def edited(editor: LogitsEditor, tokens: list[int], row: list[float]) -> list[float]:
    values = np.array(row, np.float32)
    editor.edit(values, tokens)
    return [float(value) for value in values]


LONG_WORD = LogitsSpec(bad_words=((0, 1, 2),))


@table(
    "spec, tokens, row, expected",
    [
        (LogitsSpec(bias=((1, 2.5), (2, -100.0))), [], [0, 0, 0], [0, 2.5, -100]),
        (LogitsSpec(bad_words=((2,),)), [], [0, 0, 9], [0, 0, OUT]),
        # A longer word is not completed.
        (LONG_WORD, [], [0, 0, 9], [0, 0, 9]),
        (LONG_WORD, [1, 0], [0, 0, 9], [0, 0, 9]),
        (LONG_WORD, [2, 0, 1], [0, 0, 9], [0, 0, OUT]),
        (LogitsSpec(allowed_ids=(0, 2)), [], [1, 5, 3], [1, OUT, 3]),
        # A forbidden word stays forbidden among the allowed.
        (LogitsSpec(allowed_ids=(0, 2), bad_words=((2,),)), [], [1, 5, 3], [1, OUT, OUT]),
    ],
)
def test_a_row_is_changed_as_requested(spec, tokens, row, expected):
    assert edited(LogitsEditor(spec), tokens, row) == expected


def test_the_penalty_is_genais() -> None:
    row = np.array([4, -4, 4], np.float32)
    penalize(row, np.array([0], np.int64), [1], 2.0)
    assert row.tolist() == [2, -8, 4]


def test_replayed_tokens_are_counted_again() -> None:
    editor = LogitsEditor(LogitsSpec(budget=BUDGET))
    edited(editor, [OTHER, OTHER], [0.0] * 10)
    assert edited(editor, [OTHER], [0.0] * 10) == [0.0] * 10


THINK, END, OTHER = 7, 8, 1
BUDGET = ReasoningBudget(2, is_open=True, start=(THINK,), end=(END,), closing_ids=(END, 5))


def forced(budget: ReasoningBudget, tokens: list[int]) -> int | None:
    """The only token that may follow, if there is only one."""
    editor = LogitsEditor(LogitsSpec(budget=budget))
    result = np.zeros(10, np.float32)
    for end in range(len(tokens) + 1):
        result = np.zeros(10, np.float32)
        editor.edit(result, tokens[:end])
    possible = np.flatnonzero(np.isfinite(result))
    return int(possible[0]) if len(possible) == 1 else None


NOTHING = ReasoningBudget(0, is_open=True, start=(), end=(END,), closing_ids=(END,))
OWN = ReasoningBudget(2, is_open=False, start=(THINK,), end=(END,), closing_ids=(END,))
MARKED = ReasoningBudget(1, is_open=False, start=(THINK, 6), end=(END,), closing_ids=(END,))


@table(
    "budget, tokens, expected",
    [
        # Reasoning ends when its budget is used up; reasoning that ends earlier is not changed.
        (BUDGET, [OTHER], None),
        (BUDGET, [OTHER, OTHER], END),
        (BUDGET, [OTHER, OTHER, END], 5),
        (BUDGET, [OTHER, OTHER, END, 5], None),
        (BUDGET, [OTHER, END, OTHER, OTHER, OTHER], None),
        # A budget of nothing closes at once.
        (NOTHING, [], END),
        (NOTHING, [END], None),
        # Reasoning that the model opens counts from there, and all of it shares one budget.
        (OWN, [OTHER] * 5, None),
        (OWN, [OTHER, THINK, OTHER, OTHER], END),
        (OWN, [THINK, OTHER, END, OTHER, THINK, OTHER], END),
        (OWN, [THINK, OTHER, OTHER, END, THINK], END),
        # A mark may have several tokens.
        (MARKED, [6, OTHER, OTHER], None),
        (MARKED, [THINK, 6, OTHER], END),
    ],
)
def test_a_budget_closes_reasoning(budget, tokens, expected):
    assert forced(budget, tokens) == expected


@table(
    "spec",
    [
        LogitsSpec(bias=((10, 1.0),)),
        LogitsSpec(bad_words=((1, -1),)),
        LogitsSpec(allowed_ids=(10,)),
        LogitsSpec(logprobs=LogprobsSpec(token_ids=(10,))),
        LogitsSpec(prompt_logprobs=LogprobsSpec(token_ids=(10,))),
    ],
)
def test_a_token_outside_of_the_vocabulary_is_refused(spec: LogitsSpec) -> None:
    with pytest.raises(ValueError, match="is no token of this model: ids go from 0 to 9"):
        check_ids(spec, 10)


def only_even(args: dict[str, object]) -> object:
    """A factory as administrators write them."""
    if args.get("parity") != "even":
        return None

    def process(_tokens: object, row: np.ndarray) -> None:
        row[1::2] = OUT

    return process


def never(_args: dict[str, object]) -> object:
    raise KeyError("strength")


HERE = "tests.engine.test_logits_editor"


def test_an_administrators_processor_gets_the_row() -> None:
    processors = new_processors(load_factories([f"{HERE}:only_even"]), {"parity": "even"})
    assert edited(LogitsEditor(LogitsSpec(), processors), [], [1, 1, 1]) == [1, OUT, 1]


@table(
    "name, message",
    [
        ("only_even", "No logits processor of this model takes these"),
        ("never", "test_logits_editor:never refused its arguments: 'strength'"),
    ],
)
def test_arguments_that_no_processor_takes_are_refused(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        new_processors(load_factories([f"{HERE}:{name}"]), {"parity": "odd"})


@table("path", ["no.such.module:f", f"{HERE}:nothing", f"{HERE}", f"{HERE}:HERE"])
def test_a_wrong_path_fails_the_load(path: str) -> None:
    with pytest.raises(RuntimeError, match="logits_processors"):
        load_factories([path])


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
