"""Requests with an unread body are in the ledger, once each."""

from __future__ import annotations

import socket
from collections.abc import Callable
from urllib.parse import urlsplit

import httpx
import pytest

from tests.conftest import Running, until
from tests.system.ledger import Row, is_written, rows

pytestmark = pytest.mark.system

GENERATION = "/v1/chat/completions"
TOKENIZE = "/v1/tokenize"


@pytest.fixture
def new_rows(running: Running) -> Callable[[], list[Row]]:
    until(lambda: is_written(running))  # what others have just asked
    before = {row.request_id for row in rows(running)}
    return lambda: [row for row in rows(running) if row.request_id not in before]


def post(running: Running, path: str, **more: object) -> httpx.Response:
    key = {"authorization": f"Bearer {running.api_key}"}
    headers = {**key, **more.pop("headers", {})}  # type: ignore[dict-item]
    return httpx.post(f"{running.base_url}{path}", headers=headers, timeout=60, **more)  # type: ignore[arg-type]


def leave_in_the_middle(running: Running, path: str, *, key: str) -> None:
    """Promise a body, send a part of it, and go."""
    url = urlsplit(running.base_url)
    head = (
        f"POST {path} HTTP/1.1\r\nhost: {url.netloc}\r\nauthorization: Bearer {key}\r\n"
        "content-type: application/json\r\ncontent-length: 1000\r\n\r\n"
    )
    with socket.create_connection((url.hostname, url.port), timeout=10) as connection:
        connection.sendall(head.encode() + b'{"messages": [')


def only(found: list[Row]) -> Row:
    (row,) = found
    return row


def test_a_body_of_another_kind(running: Running, new_rows: Callable[[], list[Row]]) -> None:
    answer = post(running, GENERATION, content=b"a=1", headers={"content-type": "text/plain"})

    row = only(until(new_rows))
    assert answer.status_code == row.http_status == 415
    assert answer.headers["x-request-id"] == row.request_id
    assert (row.outcome, row.endpoint, row.model) == ("rejected", "chat/completions", "")
    assert row.key_name


def test_a_body_that_is_too_large(running: Running, new_rows: Callable[[], list[Row]]) -> None:
    answer = post(running, GENERATION, content=bytes(64 * 2**20 + 1))

    row = only(until(new_rows))
    assert (answer.status_code, row.http_status, row.outcome) == (413, 413, "rejected")


def test_a_client_that_leaves_in_the_middle_of_its_body(
    running: Running, new_rows: Callable[[], list[Row]]
) -> None:
    leave_in_the_middle(running, GENERATION, key=running.api_key)

    row = only(until(new_rows))
    assert (row.outcome, row.http_status) == ("client_gone", 499)
    assert (row.num_prompt_tokens, row.num_output_tokens) == (0, 0)


def test_who_has_no_key_has_no_row(running: Running, new_rows: Callable[[], list[Row]]) -> None:
    leave_in_the_middle(running, GENERATION, key="vny_live_unknown")
    refused = post(running, GENERATION, content=b"{}", headers={"authorization": "Bearer unknown"})
    assert refused.status_code == 401
    last = post(running, GENERATION, content=b"{")

    row = only(until(new_rows))
    assert row.request_id == last.headers["x-request-id"]


def test_what_is_not_metered_has_none_either(
    running: Running, new_rows: Callable[[], list[Row]]
) -> None:
    leave_in_the_middle(running, TOKENIZE, key=running.api_key)
    post(running, TOKENIZE, content=b"a", headers={"content-type": "text/plain"})
    last = post(running, GENERATION, content=b"{")

    row = only(until(new_rows))
    assert row.request_id == last.headers["x-request-id"]
