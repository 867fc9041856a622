"""The document needs no key, and Schemathesis finds no difference between it and the server.

Its positive, negative and stateful phases run against the real engine, with a fixed seed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import REPOSITORY, Running, clean_environment
from tests.pooling_models import pooling_models
from vinery import __version__

pytestmark = pytest.mark.system

SETTINGS = REPOSITORY / "tests" / "contract" / "fuzzing" / "schemathesis.toml"
GENERATION = ["chat/completions", "completions", "responses", "messages"]
POOLING = ["embeddings", "rerank", "score"]
TIMEOUT_S = 1200


@pytest.fixture(scope="module")
def with_every_task(running: Running) -> Iterator[Running]:
    """The shared platform with models that chat, embed and rank."""
    with pooling_models(running):
        yield running


def test_the_document_is_open_to_all(running: Running) -> None:
    first = httpx.get(f"{running.base_url}/openapi.json")
    again = httpx.get(f"{running.base_url}/openapi.json")
    bare = httpx.head(f"{running.base_url}/openapi.json")

    assert first.json()["openapi"] == "3.1.0"
    assert first.json()["info"]["version"] == __version__
    assert first.headers["access-control-allow-origin"] == "*"
    assert again.content == first.content
    assert bare.content == b""
    assert bare.headers["content-length"] == first.headers["content-length"]


def test_the_document_can_only_be_read(running: Running) -> None:
    response = httpx.post(f"{running.base_url}/openapi.json")

    assert response.status_code == 405
    assert response.headers["allow"] == "GET, HEAD"
    assert response.json()["error"]["code"] == "method_not_allowed"


@pytest.mark.timeout(TIMEOUT_S + 30)
def test_every_bound_of_every_field_is_as_documented(
    with_every_task: Running, tmp_path: Path
) -> None:
    """All valid and invalid boundary values of one tree; the other has the same fields."""
    paths = f"^/v1/({'|'.join([*GENERATION, *POOLING, 'models.*'])})$"
    seen = schemathesis(
        with_every_task, tmp_path, "--phases=coverage", f"--include-path-regex={paths}"
    )

    for endpoint in GENERATION:
        path = f"/v1/{endpoint}"
        assert seen[path, "positive", 200] > seen[path, "positive", 400], seen
        assert seen[path, "negative", 400] > 100, seen
    for endpoint in POOLING:
        path = f"/v1/{endpoint}"
        assert seen[path, "positive", 200] > seen[path, "positive", 400], seen
        assert seen[path, "negative", 400] > 20, seen


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


def schemathesis(running: Running, tmp_path: Path, *arguments: str) -> Counter[Any]:
    """Run it; fail with its output if it finds a defect. Returns how often each path
    got valid and invalid data, and the statuses of the answers."""
    tally = tmp_path / "tally.json"
    environment = clean_environment() | {
        "SCHEMATHESIS_HOOKS": "tests.contract.fuzzing.hooks",
        "VINERY_TEST_TALLY": str(tally),
        "COLUMNS": "120",
        # Otherwise the client reads all variables for a proxy, at each request.
        "NO_PROXY": "127.0.0.1",
    }
    command = [
        *(sys.executable, "-m", "schemathesis.cli", f"--config-file={SETTINGS}", "run"),
        f"{running.base_url}/openapi.json",
        f"--header=Authorization: Bearer {running.api_key}",
        "--seed=1",
        "--generation-database=none",
        "--no-color",
        "--no-shrink",
        "--continue-on-failure",
        *arguments,
    ]
    ended = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert ended.returncode == 0, ended.stdout[-12_000:] + ended.stderr[-2_000:]
    rows = json.loads(tally.read_text(encoding="utf-8"))
    return Counter({(path, mode, status): count for path, mode, status, count in rows})
