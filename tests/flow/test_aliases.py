"""Requests of an alias are divided between its models."""

from collections import Counter
from collections.abc import Callable
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from vinery_serving.gateway.engines.models import draw

TARGETS = {"a": 90, "b": 10, "spare": 0}
some_targets = st.dictionaries(st.text(min_size=1), st.integers(0, 100), min_size=1, max_size=6)


def able(*names: str) -> Callable[[str], bool]:
    return lambda name: name in names


def drawn(targets: dict[str, int], can_answer: Callable[[str], bool]) -> Counter[str]:
    dice = Random(3)
    return Counter(draw(targets, can_answer, dice) for _ in range(2000))


def test_requests_are_divided_by_the_weights_between_models_that_can_answer():
    counts = drawn(TARGETS, able("a", "b", "spare"))
    assert 0.87 < counts["a"] / 2000 < 0.93
    assert counts["a"] + counts["b"] == 2000

    assert drawn(TARGETS, able("b")) == drawn(TARGETS, able("b", "spare")) == {"b": 2000}
    # A model without weight answers when no other can.
    assert drawn(TARGETS, able("spare")) == {"spare": 2000}
    # If none can, those with a weight are waited for.
    assert set(drawn(TARGETS, able())) == {"a", "b"}


@given(some_targets, st.sets(st.text(min_size=1)), st.integers())
def test_what_is_drawn_can_answer_if_any_can(targets, others, seed):
    names = set(list(targets)[: seed % (len(targets) + 1)]) | others

    name = draw(targets, able(*names), Random(seed))

    assert name in targets
    assert name in names or not names & targets.keys()
