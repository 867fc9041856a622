"""Runs of Schemathesis against a platform."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

from tests.conftest import Running, clean_environment

GENERATION: Final = ("chat/completions", "completions", "responses", "messages")
POOLING: Final = ("embeddings", "rerank", "score")
TIMEOUT_S: Final = 1200
# All invalid boundary values of one tree; the other has the same fields.
BOUNDS: Final = (
    "--phases=coverage",
    f"--include-path-regex=^/v1/({'|'.join([*GENERATION, *POOLING, 'models.*'])})$",
)


def schemathesis(
    running: Running, tmp_path: Path, *arguments: str, one_of: int = 1
) -> Counter[tuple[str, str, int]]:
    """Send wrong requests with Schemathesis; fail with the output for a defect. Returns the
    number of answers by path, mode and status. Only one of `one_of` bounds is tried."""
    tally = tmp_path / "tally.json"
    environment = clean_environment() | {
        "SCHEMATHESIS_HOOKS": "tests.contract.fuzzing.hooks",
        "VINERY_TEST_TALLY": str(tally),
        "VINERY_TEST_ONE_OF": str(one_of),
        "COLUMNS": "120",
        # Otherwise the client reads all variables for a proxy, at each request.
        "NO_PROXY": "127.0.0.1",
    }
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run"),
        f"{running.base_url}/openapi.json",
        f"--header=Authorization: Bearer {running.api_key}",
        "--mode=negative",
        "--seed=1",
        "--generation-database=none",
        "--no-color",
        "--no-shrink",
        "--continue-on-failure",
        *arguments,
    ]
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert ended.returncode == 0, ended.stdout[-12_000:] + ended.stderr[-2_000:]
    rows = json.loads(tally.read_text(encoding="utf-8"))
    return Counter({(path, mode, status): count for path, mode, status, count in rows})
