"""The metrics of requests on a running platform."""

from __future__ import annotations

import httpx
import pytest

from tests.conftest import Running
from tests.system.ledger import labelled, metrics

pytestmark = pytest.mark.system

TIMES = ("time_to_first_token", "inter_token", "request", "queue")


def ask(running: Running, model: str) -> int:
    return httpx.post(
        f"{running.base_url}/v1/completions",
        headers={"authorization": f"Bearer {running.api_key}"},
        json={"model": model, "prompt": "one two", "max_tokens": 5, "ignore_eos": True},
        timeout=60,
    ).status_code


def num_requests(running: Running, model: str, status: int) -> float:
    of = {"model": model, "endpoint": "completions", "status": str(status)}
    return labelled(running, "vinery_requests_total", **of)


def test_requests_are_counted_by_model_and_status(running: Running) -> None:
    before = num_requests(running, "tiny-chat", 200)
    assert [ask(running, "tiny-chat") for _ in range(2)] == [200, 200]
    assert num_requests(running, "tiny-chat", 200) == before + 2


def test_a_model_that_a_client_makes_up_is_no_label(running: Running) -> None:
    before = num_requests(running, "unknown", 404)
    assert [ask(running, f"made-up-{number}") for number in range(3)] == [404] * 3
    assert num_requests(running, "unknown", 404) == before + 3
    assert not [series for series in metrics(running) if "made-up" in series]


@pytest.mark.parametrize("name", TIMES)
def test_each_time_of_a_request_is_in_a_bucket(running: Running, name: str) -> None:
    family = f"vinery_{name}_seconds"
    before = labelled(running, f"{family}_count", model="tiny-chat")
    sum_before_s = labelled(running, f"{family}_sum", model="tiny-chat")
    assert ask(running, "tiny-chat") == 200
    assert labelled(running, f"{family}_count", model="tiny-chat") == before + 1
    assert labelled(running, f"{family}_bucket", model="tiny-chat", le="+Inf") == before + 1
    assert labelled(running, f"{family}_sum", model="tiny-chat") >= sum_before_s


def test_no_usage_is_lost(running: Running) -> None:
    result = [
        num for series, num in metrics(running).items() if "vinery_usage_lost_total" in series
    ]
    assert result
    assert not any(result)
