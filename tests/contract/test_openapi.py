"""The document needs no key, and the server refuses what it forbids, a sample or each night all."""

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
def test_a_sample_of_wrong_bounds_is_refused_as_documented(
    with_every_task: Running, tmp_path: Path
) -> None:
    seen = schemathesis(with_every_task, tmp_path, *BOUNDS, one_of=50)

    for endpoint in (*GENERATION, *POOLING):
        assert seen[f"/v1/{endpoint}", "negative", 400], seen
