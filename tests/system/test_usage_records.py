"""Counts of a platform: the rows of requests, also with an unread body, and the metrics."""

from collections.abc import Callable, Mapping
from typing import Any

import httpx

from tests.conftest import Running, until
from tests.system.clients import bearer, complete, connect, head, http_of, new_key
from tests.system.ledger import Row, execute, is_written, labelled, rows

GENERATION = "/v1/chat/completions"
TOKENIZE = "/v1/tokenize"
TIMES = (
    "vllm:time_to_first_token_seconds",
    "vllm:request_time_per_output_token_seconds",
    "vllm:request_queue_time_seconds",
    "vinery_request_seconds",
)


def post(running: Running, path: str = "/v1/completions", **more: Any) -> httpx.Response:
    headers = {**bearer(running), **more.pop("headers", {})}
    return httpx.post(running.base_url + path, headers=httpx.Headers(headers), timeout=60, **more)


def ask(running: Running, headers: Mapping[str, str | bytes]) -> httpx.Response:
    body = {"model": "tiny-chat", "prompt": "one two", "max_tokens": 3}
    return post(running, headers=headers, json=body)


def row_of(running: Running, answer: httpx.Response) -> Row:
    request_id = answer.headers["x-request-id"]
    (row,) = until(lambda: [row for row in rows(running) if row.request_id == request_id])
    return row


def test_a_request_is_found_by_its_clients_name_if_openai_would_take_it(running: Running) -> None:
    name = "mine-" + 507 * "x"
    answer = ask(running, {"x-client-request-id": name})
    assert answer.status_code == 200
    row = row_of(running, answer)
    sql = "SELECT request_id FROM accounts_usagerecord WHERE client_request_id = ?"
    assert [found[0] for found in execute(running, sql, name)] == [row.request_id]
    for refused in (513 * "x", "größer"):
        answer = ask(running, {"x-client-request-id": refused.encode()})
        assert answer.status_code == 400
        assert "x-client-request-id" in answer.json()["error"]["message"]
        assert row_of(running, answer).outcome == "rejected"


# -- Unread bodies


def rows_after(running: Running) -> Callable[[], list[Row]]:
    """A function that returns the rows that are new since now."""
    until(lambda: is_written(running))  # requests of other tests
    before = {row.request_id for row in rows(running)}
    return lambda: [row for row in rows(running) if row.request_id not in before]


def leave_in_the_middle(running: Running, path: str, *, key: str) -> None:
    """Promise a body, send a part of it, and go."""
    fields = ("content-type: application/json", "content-length: 1000")
    with connect(running) as connection:
        connection.sendall(head(running, f"POST {path}", *fields, key=key) + b'{"messages": [')


def only(found: list[Row]) -> Row:
    (row,) = found
    return row


def test_a_body_of_another_kind_or_that_is_too_large_has_a_row(running: Running) -> None:
    new_rows = rows_after(running)
    answer = post(running, GENERATION, content=b"a=1", headers={"content-type": "text/plain"})
    row = only(until(new_rows))
    assert answer.status_code == row.http_status == 415
    assert answer.headers["x-request-id"] == row.request_id
    assert (row.outcome, row.endpoint, row.model) == ("rejected", "chat/completions", "")
    assert row.key_name

    new_rows = rows_after(running)
    answer = post(running, GENERATION, content=bytes(64 * 2**20 + 1))
    row = only(until(new_rows))
    assert (answer.status_code, row.http_status, row.outcome) == (413, 413, "rejected")


def test_who_leaves_in_a_body_has_a_row_if_it_has_a_key_and_is_metered(running: Running) -> None:
    new_rows = rows_after(running)
    leave_in_the_middle(running, GENERATION, key=running.api_key)
    row = only(until(new_rows))
    assert (row.outcome, row.http_status) == ("client_gone", 499)
    assert (row.num_prompt_tokens, row.num_output_tokens) == (0, 0)

    new_rows = rows_after(running)
    leave_in_the_middle(running, GENERATION, key="vny_live_unknown")
    refused = post(running, GENERATION, content=b"{}", headers={"authorization": "Bearer unknown"})
    assert refused.status_code == 401
    last = post(running, GENERATION, content=b"{")
    assert only(until(new_rows)).request_id == last.headers["x-request-id"]

    new_rows = rows_after(running)
    leave_in_the_middle(running, TOKENIZE, key=running.api_key)
    post(running, TOKENIZE, content=b"a", headers={"content-type": "text/plain"})
    last = post(running, GENERATION, content=b"{")
    assert only(until(new_rows)).request_id == last.headers["x-request-id"]


# -- Metrics


def status(running: Running, model: str = "tiny-chat") -> int:
    return complete(running, model, max_tokens=5, ignore_eos=True).status_code


def test_a_request_is_in_a_bucket_of_each_time_and_counted_by_its_engine(running: Running) -> None:
    name = {"model_name": "tiny-chat"}
    names = ("request_success_total", "generation_tokens_total", "prefix_cache_queries_total")
    names += ("e2e_request_latency_seconds_count",)
    before = {each: labelled(running, f"vllm:{each}", **name) for each in names}
    times_before = {each: of_time(running, each) for each in TIMES}
    assert status(running) == 200

    for each, (count_before, _, sum_before_s) in times_before.items():
        count, bucket, sum_s = of_time(running, each)
        assert count == bucket == count_before + 1, each
        assert sum_s >= sum_before_s, each
    for each in names:
        until(lambda each=each: labelled(running, f"vllm:{each}", **name) > before[each])  # type: ignore[misc]
    assert 0 <= labelled(running, "vllm:kv_cache_usage_perc", **name) <= 1

    with http_of(running, new_key(running, "watching", "--scope", "admin")) as client:
        answer = client.get("/api/models/", params={"name": "tiny-chat"})
    engine = answer.json()["data"][0]["engine"]
    assert engine["memory_bytes"] > 2**20
    assert engine["work"]["first_token_s"]["p50"] > 0
    assert 0 <= engine["work"]["prefix_hit_rate"] <= 1
    assert engine["work"]["draft_acceptance"] is None


def of_time(running: Running, name: str) -> tuple[float, float, float]:
    """How many there were, how many in the last bucket, and their sum in seconds."""
    of = {"model_name" if name.startswith("vllm:") else "model": "tiny-chat"}
    return (
        labelled(running, f"{name}_count", **of),
        labelled(running, f"{name}_bucket", **of, le="+Inf"),
        labelled(running, f"{name}_sum", **of),
    )
