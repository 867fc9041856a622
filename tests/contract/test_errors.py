"""Every documented error that needs a server, on both URL trees."""

from __future__ import annotations

from typing import Any

import httpx

from docs.failures import BEFORE_THE_BODY, WITH_THE_MODEL, Failure
from tests.conftest import Running
from tests.tables import table

from .conftest import TREES


@table("tree", TREES)
@table("row", (*BEFORE_THE_BODY, *WITH_THE_MODEL))
def test_the_error_is_the_one_in_the_table(running: Running, row: Failure, tree: str) -> None:
    response = ask(running, row, tree)

    assert response.status_code == row.status, response.text
    assert response.json() == {
        "error": {
            "message": row.message.replace("{tree}", tree),
            "type": "invalid_request_error",
            "param": row.param,
            "code": row.code,
        }
    }
    assert response.headers["x-request-id"]


def ask(running: Running, row: Failure, tree: str) -> httpx.Response:
    key = {"authorization": f"Bearer {running.api_key}"} if row.has_key else {}
    content = row.body() if callable(row.body) else row.body
    body: dict[str, Any] = {"content" if isinstance(content, bytes) else "json": content}
    return httpx.request(
        row.method,
        running.base_url + row.path.replace("{tree}", tree),
        headers={**key, **row.headers},
        timeout=60,
        **body,
    )
