"""Schemathesis tries every bound of every field, and chains of random requests."""

from pathlib import Path

import pytest

from tests.conftest import Running

from .fuzzing.runs import BOUNDS, GENERATION, POOLING, TIMEOUT_S, schemathesis


@pytest.mark.timeout(TIMEOUT_S + 30)
def test_every_bound_of_every_field_is_as_documented(
    with_every_task: Running, tmp_path: Path
) -> None:
    seen = schemathesis(with_every_task, tmp_path, *BOUNDS)

    for endpoint in (*GENERATION, *POOLING):
        path = f"/v1/{endpoint}"
        assert seen[path, "positive", 200] > seen[path, "positive", 400], seen
        assert seen[path, "negative", 400] > (100 if endpoint in GENERATION else 20), seen


@pytest.mark.timeout(TIMEOUT_S + 30)
def test_random_requests_and_chains_are_answered_as_documented(
    with_every_task: Running, tmp_path: Path
) -> None:
    seen = schemathesis(with_every_task, tmp_path, "--phases=fuzzing,stateful", "--max-examples=15")

    for tree in ("v1", "v3"):
        for endpoint in (*GENERATION, *POOLING):
            assert seen[f"/{tree}/{endpoint}", "positive", 200], seen
            assert seen[f"/{tree}/{endpoint}", "negative", 400], seen
        assert seen[f"/{tree}/models/{{id}}", "positive", 200], seen
