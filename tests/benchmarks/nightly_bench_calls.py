"""Calls as models write them, read in any parts."""

import pytest

from benchmarks.calls.damage import KINDS
from benchmarks.calls.forms import FORMS
from tests.benchmarks.test_bench_calls import check_parts


@pytest.mark.parametrize("family", FORMS)
def test_a_call_is_read_the_same_in_any_parts(family: str) -> None:
    for kind in KINDS:
        check_parts(family, kind, number=3, distance=7)
