"""How a request's options change a row of logits."""

from __future__ import annotations

import numpy as np
import pytest

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


def test_bias_is_added() -> None:
    editor = LogitsEditor(LogitsSpec(bias=((1, 2.5), (2, -100.0))))
    assert edited(editor, [], [0, 0, 0]) == [0, 2.5, -100]


def test_a_bad_word_of_one_token_is_impossible() -> None:
    assert edited(LogitsEditor(LogitsSpec(bad_words=((2,),))), [], [0, 0, 9]) == [0, 0, OUT]


def test_a_longer_word_is_not_completed() -> None:
    editor = LogitsEditor(LogitsSpec(bad_words=((0, 1, 2),)))
    assert edited(editor, [], [0, 0, 9]) == [0, 0, 9]
    assert edited(editor, [1, 0], [0, 0, 9]) == [0, 0, 9]
    assert edited(editor, [2, 0, 1], [0, 0, 9]) == [0, 0, OUT]


def test_only_allowed_tokens_keep_their_values() -> None:
    assert edited(LogitsEditor(LogitsSpec(allowed_ids=(0, 2))), [], [1, 5, 3]) == [1, OUT, 3]


def test_a_forbidden_word_stays_forbidden_among_the_allowed() -> None:
    spec = LogitsSpec(allowed_ids=(0, 2), bad_words=((2,),))
    assert edited(LogitsEditor(spec), [], [1, 5, 3]) == [1, OUT, OUT]


def test_the_penalty_is_genais() -> None:
    row = np.array([4, -4, 4], np.float32)
    penalize(row, np.array([0], np.int64), [1], 2.0)
    assert row.tolist() == [2, -8, 4]


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


def test_reasoning_ends_when_its_budget_is_used_up() -> None:
    assert forced(BUDGET, [OTHER]) is None
    assert forced(BUDGET, [OTHER, OTHER]) == END
    assert forced(BUDGET, [OTHER, OTHER, END]) == 5
    assert forced(BUDGET, [OTHER, OTHER, END, 5]) is None


def test_reasoning_that_ends_by_itself_is_not_changed() -> None:
    assert forced(BUDGET, [OTHER, END, OTHER, OTHER, OTHER]) is None


def test_a_budget_of_nothing_closes_at_once() -> None:
    none = ReasoningBudget(0, is_open=True, start=(), end=(END,), closing_ids=(END,))
    assert forced(none, []) == END
    assert forced(none, [END]) is None


def test_reasoning_that_the_model_opens_counts_from_there() -> None:
    own = ReasoningBudget(2, is_open=False, start=(THINK,), end=(END,), closing_ids=(END,))
    assert forced(own, [OTHER] * 5) is None
    assert forced(own, [OTHER, THINK, OTHER, OTHER]) == END


def test_a_mark_of_several_tokens_opens_reasoning() -> None:
    own = ReasoningBudget(1, is_open=False, start=(THINK, 6), end=(END,), closing_ids=(END,))
    assert forced(own, [6, OTHER, OTHER]) is None
    assert forced(own, [THINK, 6, OTHER]) == END


def test_all_reasoning_of_an_answer_shares_one_budget() -> None:
    own = ReasoningBudget(2, is_open=False, start=(THINK,), end=(END,), closing_ids=(END,))
    assert forced(own, [THINK, OTHER, END, OTHER, THINK, OTHER]) == END
    assert forced(own, [THINK, OTHER, OTHER, END, THINK]) == END


def test_replayed_tokens_are_counted_again() -> None:
    editor = LogitsEditor(LogitsSpec(budget=BUDGET))
    edited(editor, [OTHER, OTHER], [0.0] * 10)
    assert edited(editor, [OTHER], [0.0] * 10) == [0.0] * 10


@pytest.mark.parametrize(
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


def test_arguments_that_no_processor_takes_are_refused() -> None:
    with pytest.raises(ValueError, match="No logits processor of this model takes these"):
        new_processors(load_factories([f"{HERE}:only_even"]), {"parity": "odd"})


def test_a_processor_that_refuses_its_arguments_is_quoted() -> None:
    with pytest.raises(
        ValueError, match="test_logits_editor:never refused its arguments: 'strength'"
    ):
        new_processors(load_factories([f"{HERE}:never"]), {})


@pytest.mark.parametrize("path", ["no.such.module:f", f"{HERE}:nothing", f"{HERE}", f"{HERE}:HERE"])
def test_a_wrong_path_fails_the_load(path: str) -> None:
    with pytest.raises(RuntimeError, match="logits_processors"):
        load_factories([path])
