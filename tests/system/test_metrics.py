"""The metrics of requests on a running platform."""

from __future__ import annotations

import pytest

from tests.conftest import Running, until
from tests.system.clients import complete, http_of, new_key
from tests.system.ledger import labelled, metrics

pytestmark = pytest.mark.system

TIMES = ("time_to_first_token", "inter_token", "request", "queue")


def ask(running: Running, model: str = "tiny-chat") -> int:
    return complete(running, model, max_tokens=5, ignore_eos=True).status_code


def num_requests(running: Running, model: str, status: int) -> float:
    of = {"model": model, "endpoint": "completions", "status": str(status)}
    return labelled(running, "vinery_requests_total", **of)


def test_requests_are_counted_by_model_and_status(running: Running) -> None:
    before = num_requests(running, "tiny-chat", 200)
    assert [ask(running) for _ in range(2)] == [200, 200]
    assert num_requests(running, "tiny-chat", 200) == before + 2


def test_a_model_that_a_client_makes_up_is_no_label(running: Running) -> None:
    before = num_requests(running, "unknown", 404)
    assert [ask(running, f"made-up-{number}") for number in range(3)] == [404] * 3
    assert num_requests(running, "unknown", 404) == before + 3
    assert not [series for series in metrics(running) if "made-up" in series]


def test_each_time_of_a_request_is_in_a_bucket(running: Running) -> None:
    before = {name: of_time(running, name) for name in TIMES}
    assert ask(running) == 200
    for name in TIMES:
        (count, bucket, sum_s), (count_before, _, sum_before_s) = (
            of_time(running, name),
            before[name],
        )
        assert count == bucket == count_before + 1, name
        assert sum_s >= sum_before_s, name


def of_time(running: Running, name: str) -> tuple[float, float, float]:
    """How many there were, how many in the last bucket, and their sum in seconds."""
    family, of = f"vinery_{name}_seconds", {"model": "tiny-chat"}
    return (
        labelled(running, f"{family}_count", **of),
        labelled(running, f"{family}_bucket", **of, le="+Inf"),
        labelled(running, f"{family}_sum", **of),
    )


def test_no_usage_is_lost(running: Running) -> None:
    result = [
        num for series, num in metrics(running).items() if "vinery_usage_lost_total" in series
    ]
    assert result
    assert not any(result)


def test_a_request_is_counted_under_vllms_names(running: Running) -> None:
    name = {"model_name": "tiny-chat"}
    names = ("request_success_total", "generation_tokens_total", "prefix_cache_queries_total")
    names += ("e2e_request_latency_seconds_count", "time_to_first_token_seconds_count")
    before = {each: labelled(running, f"vllm:{each}", **name) for each in names}

    assert ask(running) == 200

    for each in names:
        until(lambda each=each: labelled(running, f"vllm:{each}", **name) > before[each])  # type: ignore[misc]
    assert 0 <= labelled(running, "vllm:kv_cache_usage_perc", **name) <= 1


def test_speeds_and_waits_of_an_engine_are_in_the_management_api(running: Running) -> None:
    ask(running)
    with http_of(running, new_key(running, "watching", "--scope", "admin")) as client:
        answer = client.get("/api/models/", params={"name": "tiny-chat"})
    engine = answer.json()["data"][0]["engine"]

    assert engine["memory_bytes"] > 2**20
    assert engine["work"]["first_token_s"]["p50"] > 0
    assert 0 <= engine["work"]["prefix_hit_rate"] <= 1
    assert engine["work"]["draft_acceptance"] is None
