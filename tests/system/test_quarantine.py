"""A request that ends two engines is refused by every web process, until it is released."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.conftest import Running, until
from tests.system.commands import vinery
from tests.system.ledger import is_idle, metric

pytestmark = pytest.mark.system

# So long that it does not end by itself while engines are killed.
FATAL = {
    "model": "tiny-chat",
    "prompt": "A request that ends engines",
    "max_tokens": 1900,
    "ignore_eos": True,
    "stream": True,
}
PATH = "/v1/completions"


def test_a_request_that_ends_two_engines_is_refused_listed_and_released(running: Running) -> None:
    until(lambda: is_idle(running))
    key = {"authorization": f"Bearer {running.api_key}"}
    with httpx.Client(base_url=running.base_url, headers=key, timeout=120) as client:
        ended = answer_without_engines(running, client)
        assert "engine_lost" in ended.text

        refused = until(lambda: refusal(client))
        assert refused.json()["error"]["code"] == "request_quarantined"
        (row,) = json.loads(vinery(running, "quarantine", "list", "--json"))
        assert (row["request_id"], row["model"]) == (ended.headers["x-request-id"], "tiny-chat")
        assert row["key_id"] is not None
        assert row["digest"] in refused.json()["error"]["message"]
        assert row["digest"] in running.log.read_text()

        vinery(running, "quarantine", "release", row["digest"])
        with client.stream("POST", PATH, json=FATAL) as accepted:
            assert accepted.status_code == 200


def answer_without_engines(running: Running, client: httpx.Client) -> httpx.Response:
    """Send the request, and kill each engine that runs it."""
    with ThreadPoolExecutor(1) as sending:
        answer = sending.submit(client.post, PATH, json=FATAL)
        for _ in range(2):
            until(lambda: metric(running, "vinery_engine_running") > 0 or answer.done())
            killed = running.kill("engine")
            until(lambda killed=killed: running.has_replaced("engine", killed))
        return answer.result()


def refusal(client: httpx.Client) -> httpx.Response | None:
    """Send the request, and return the answer if it is an error."""
    with client.stream("POST", PATH, json=FATAL) as answer:
        if answer.status_code == 200:
            return None
        answer.read()
        return answer
