"""Whole products of settings: the tests by day try pairs."""

import pytest

from tests.engine.test_known_tokens import SETTINGS, goes_on
from tests.engine.test_speculation import (
    SEEDED,
    batch,
    drafting,
    has_sampled_well,
    plain,
    plain_batch,
)
from tests.tables import table

__all__ = ["batch", "drafting", "plain", "plain_batch"]

pytestmark = pytest.mark.live


@table("num_known", [1, 7, 39])
@table("values", SETTINGS)
def test_the_rest_is_what_the_lost_engine_would_have_generated(plain_batch, num_known, values):
    goes_on(plain_batch, num_known, values)


@table("num_known", [1, 7, 39])
@table("values", [{}, {"sampling": SEEDED}])
def test_an_answer_with_draft_tokens_goes_on_after_those_of_a_lost_engine(batch, num_known, values):
    assert goes_on(batch, num_known, values).num_proposed > 0


@table("temperature", [0.9, 1.2])
def test_sampled_text_is_as_good_as_without_draft_tokens(batch, plain_batch, temperature):
    assert has_sampled_well(batch, plain_batch, temperature, num_seeds=24)
