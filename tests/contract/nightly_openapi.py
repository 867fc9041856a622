"""Schemathesis tries every wrong bound of every field, and random wrong requests."""

from pathlib import Path

import pytest

from tests.conftest import Running

from .fuzzing.runs import BOUNDS, GENERATION, POOLING, TIMEOUT_S, schemathesis


@pytest.mark.timeout(TIMEOUT_S + 30)
def test_every_wrong_bound_and_random_wrong_requests_are_refused_as_documented(
    with_every_task: Running, tmp_path: Path
) -> None:
    for phase in (BOUNDS, ("--phases=fuzzing", "--max-examples=15")):
        seen = schemathesis(with_every_task, tmp_path, *phase)

        for endpoint in (*GENERATION, *POOLING):
            assert seen[f"/v1/{endpoint}", "negative", 400], seen
