"""The document needs no key, and Schemathesis finds no difference between it and the server.

The positive, negative and stateful phases run against the real engine, with a fixed seed: a sample
here, all cases each night.
"""

from pathlib import Path

import httpx
import pytest

from tests.conftest import Running
from vinery_platform import __version__

from .fuzzing.runs import BOUNDS, GENERATION, POOLING, TIMEOUT_S, schemathesis


def test_the_document_is_open_to_all_and_can_only_be_read(running: Running) -> None:
    first = httpx.get(f"{running.base_url}/openapi.json")
    again = httpx.get(f"{running.base_url}/openapi.json")
    bare = httpx.head(f"{running.base_url}/openapi.json")

    assert first.json()["openapi"] == "3.1.0"
    assert first.json()["info"]["version"] == __version__
    assert first.headers["access-control-allow-origin"] == "*"
    assert again.content == first.content
    assert bare.content == b""
    assert bare.headers["content-length"] == first.headers["content-length"]

    response = httpx.post(f"{running.base_url}/openapi.json")

    assert response.status_code == 405
    assert response.headers["allow"] == "GET, HEAD"
    assert response.json()["error"]["code"] == "method_not_allowed"


@pytest.mark.timeout(TIMEOUT_S + 30)
def test_a_sample_of_bounds_is_as_documented(with_every_task: Running, tmp_path: Path) -> None:
    seen = schemathesis(with_every_task, tmp_path, *BOUNDS, one_of=50)

    for endpoint in (*GENERATION, *POOLING):
        path = f"/v1/{endpoint}"
        assert seen[path, "positive", 200] + seen[path, "negative", 400], seen
    assert {(mode, status) for _, mode, status in seen} >= {("positive", 200), ("negative", 400)}


@pytest.mark.timeout(TIMEOUT_S + 30)
def test_random_requests_and_chains_are_answered_as_documented(
    with_every_task: Running, tmp_path: Path
) -> None:
    seen = schemathesis(with_every_task, tmp_path, "--phases=fuzzing,stateful", "--max-examples=2")

    for tree in ("v1", "v3"):
        of_tree = {(mode, status) for path, mode, status in seen if path.startswith(f"/{tree}/")}
        assert of_tree >= {("positive", 200), ("negative", 400)}, seen
