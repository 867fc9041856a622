"""Requests of an alias are divided between its models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tests.tables import table
from vinery_serving.flow.aliases import draw

TARGETS = {"a": 90, "b": 10, "spare": 0}
some_targets = st.dictionaries(st.text(min_size=1), st.integers(0, 100), min_size=1, max_size=6)


def able(*names: str) -> Callable[[str], bool]:
    return lambda name: name in names


def drawn(targets: dict[str, int], can_answer: Callable[[str], bool]) -> Counter[str]:
    dice = Random(3)
    return Counter(draw(targets, can_answer, dice) for _ in range(2000))


def test_requests_are_divided_by_the_weights() -> None:
    counts = drawn(TARGETS, able("a", "b", "spare"))

    assert 0.87 < counts["a"] / 2000 < 0.93
    assert counts["a"] + counts["b"] == 2000


@table("can_answer", [{"b"}, {"b", "spare"}])
def test_a_model_that_cannot_answer_gets_no_request(can_answer: Collection[str]) -> None:
    assert drawn(TARGETS, able(*can_answer)) == {"b": 2000}


def test_a_model_without_weight_answers_when_no_other_can() -> None:
    assert drawn(TARGETS, able("spare")) == {"spare": 2000}


def test_if_none_can_answer_those_with_a_weight_are_waited_for() -> None:
    assert set(drawn(TARGETS, able())) == {"a", "b"}


@given(some_targets, st.sets(st.text(min_size=1)), st.integers())
def test_what_is_drawn_can_answer_if_any_can(
    targets: dict[str, int], others: set[str], seed: int
) -> None:
    names = set(list(targets)[: seed % (len(targets) + 1)]) | others

    name = draw(targets, able(*names), Random(seed))

    assert name in targets
    assert name in names or not names & targets.keys()
