"""The seconds of a step are divided by the costs of its tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vinery_serving.engine.energy.meter import EnergyTotals, RequestEnergy, StepCosts, StepWork

ONE = RequestEnergy(EnergyTotals())


def works(*counts: tuple[int, int]) -> list[StepWork]:
    return [StepWork(ONE, num_prefilled, num_decoded) for num_prefilled, num_decoded in counts]


def test_a_step_is_shared_by_its_tokens_whose_costs_are_learned() -> None:
    assert StepCosts().divide(0.4, works((0, 1), (0, 1))) == pytest.approx([0.2, 0.2])
    assert StepCosts().divide(1.0, works((30, 0), (10, 0))) == pytest.approx([0.75, 0.25])

    costs = StepCosts()
    for _ in range(50):
        costs.divide(0.010, works((0, 1)))  # 10 ms a token
        costs.divide(0.110, works((100, 0), (0, 1)))  # 1 ms to prefill one
    prefill_s, decode_s = costs.divide(0.110, works((100, 0), (0, 1)))
    assert prefill_s == pytest.approx(0.100, rel=0.01)
    assert decode_s == pytest.approx(0.010, rel=0.01)


STEPS = st.lists(
    st.tuples(
        st.floats(1e-6, 100),
        st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 8)), min_size=1, max_size=6),
    ),
    min_size=1,
)


@given(STEPS)
def test_the_parts_sum_up_to_the_step(steps: list[tuple[float, list[tuple[int, int]]]]) -> None:
    costs = StepCosts()
    for step_s, counts in steps:
        parts = costs.divide(step_s, works(*counts))
        assert min(parts) >= 0
        assert sum(parts) == pytest.approx(step_s)
