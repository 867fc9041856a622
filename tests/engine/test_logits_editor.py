"""How a request's options change a row of logits."""

import numpy as np
import pytest

from tests.tables import table
from vinery_serving.engine.logits_handler import (
    LogitsEditor,
    check_ids,
    load_factories,
    new_processors,
    penalize,
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
        # Reasoning ends when its budget is used up, and if it ends by itself, it is not changed.
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
