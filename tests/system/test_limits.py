"""Limits and quotas of a running platform, with real clients and the real engine."""

import asyncio
import time
from collections import Counter
from typing import Any

import openai
import pytest

from tests.conftest import Running, until
from tests.system import limiting
from tests.system.clients import MODEL, is_ready, platform_with
from tests.system.ledger import rows
from tests.system.limiting import LONG, ask, client, limit, num_tokens, remove_limits, settled_rows

platform = platform_with(VINERY_HUNG_AFTER_S="0")  # tests stop processes
no_limits = limiting.no_limits
TURNS = [{"role": "user", "content": "Count to 100."}]
COUNTING: Any = {"model": MODEL, "messages": TURNS, "extra_body": {"ignore_eos": True}}


# First: what earlier tests have used within the hour would count after the kill.
@pytest.mark.stores
def test_limits_survive_the_process_that_counts_them(platform: Running) -> None:
    limit(platform, "output_tokens", "day", limiting.num_output_tokens(platform) + 250)
    limit(platform, "tokens", "hour", 400)
    asked_at_s = time.time()
    answer = ask(platform, **LONG)
    assert answer.status_code == 200, answer.text
    num_tokens = answer.json()["usage"]["total_tokens"]
    assert 300 < num_tokens < 400
    assert ask(platform, **LONG).status_code == 429

    killed = platform.kill("web")
    until(lambda: platform.has_replaced("web", killed) and is_ready(platform))
    refused = ask(platform, **LONG)

    restarted_at_s = time.time()
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    wait_s = int(refused.headers["retry-after-ms"]) / 1000
    # The wait of the killed process.
    fits_after_s = (num_tokens + num_tokens - 400) / 400 * 3600
    assert asked_at_s + fits_after_s < restarted_at_s + wait_s + 1
    assert wait_s <= num_tokens / 400 * 3600

    remove_limits(platform, window="hour")
    last = ask(platform, 200).json()
    choice, used = last["choices"][0], last["usage"]["completion_tokens"]
    ending = used, choice["finish_reason"], choice["stop_reason"]
    assert ending == (150, "length", "quota_exceeded")


def test_a_retry_succeeds_after_the_given_time_and_not_earlier(platform: Running) -> None:
    limit(platform, "requests", "minute", 10)
    before = settled_rows(platform, 0)
    heard: list[limiting.Heard] = []
    patient = client(platform, max_retries=2, http_client=limiting.listening(heard)).completions
    num_calls = 0
    # The bucket refills by one in six seconds, so that it is empty after a little more than ten.
    while not any(each.status == 429 for each in heard):
        heard.clear()
        patient.create(model=MODEL, prompt="one", max_tokens=1)
        num_calls += 1
        assert num_calls < 100

    assert [each.status for each in heard] == [429, 200]
    refused, answered = heard
    retry_after_ms = int(refused.headers["retry-after-ms"])
    assert 0 < retry_after_ms <= 6000  # until the next one has come
    assert answered.asked_at_s - refused.heard_at_s >= retry_after_ms / 1000
    settled_rows(platform, before + num_calls + 1)
    refused_ids = [row.request_id for row in limiting.refused_rows(platform, before)]
    assert refused_ids == [refused.request_id]
    ((wait_s,),) = limiting.waits(platform, refused.request_id)
    assert 0 <= retry_after_ms - wait_s * 1000 < 1


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_quota_that_is_used_up_is_asked_for_once(platform: Running, is_streamed: bool) -> None:
    settled_rows(platform, 0)
    quota = num_tokens(platform) + 60
    limit(platform, "tokens", "day", quota)
    assert ask(platform, 500).json()["choices"][0]["stop_reason"] == "quota_exceeded"
    before = settled_rows(platform, 0)
    assert num_tokens(platform) == quota

    heard: list[limiting.Heard] = []
    stubborn = client(platform, max_retries=5, http_client=limiting.listening(heard))
    with pytest.raises(openai.RateLimitError) as refused:
        stubborn.completions.create(model=MODEL, prompt="one", max_tokens=1, stream=is_streamed)

    assert (refused.value.type, refused.value.code) == ("insufficient_quota",) * 2
    assert refused.value.response.headers["x-should-retry"] == "false"
    assert "retry-after" not in refused.value.response.headers
    assert [each.status for each in heard] == [429]
    assert settled_rows(platform, before + 1) == before + 1
    refused_ids = [row.request_id for row in limiting.refused_rows(platform, before)]
    assert refused_ids == [heard[0].request_id]
    assert len(limiting.waits(platform, heard[0].request_id)) == 1
    assert num_tokens(platform) == quota


def test_an_engine_generates_nothing_that_was_not_granted(platform: Running) -> None:
    before = settled_rows(platform, 0)
    limit(platform, "output_tokens", "day", limiting.num_output_tokens(platform) + 500)
    (engine,) = platform.processes("engine")
    chat = client(platform).chat.completions
    with chat.create(**COUNTING, max_tokens=1500, stream=True) as chunks:
        next(iter(chunks))
        with limiting.stopped(platform.pids("web")):  # no process grants more
            until(lambda: engine.cpu_percent(0.2) < 20)  # all granted tokens are generated
        reasons = [each.choices[0].finish_reason for each in chunks if each.choices]
    assert reasons[-1] == "length"
    settled_rows(platform, before + 1)
    assert [row.num_output_tokens for row in rows(platform)[before:]] == [500]


@pytest.mark.stores
@pytest.mark.parametrize("are_short", [False, True], ids=["long", "short"])
def test_many_at_once_use_a_quota_up_and_no_more(platform: Running, are_short: bool) -> None:
    """Although more is reserved for short answers than they use."""
    limiting.check_many_at_once(platform, 90, 2000, are_short=are_short)


def test_abandoned_streams_keep_no_slot_and_no_token(platform: Running) -> None:
    before = settled_rows(platform, 0)
    of_key = ("--key", limiting.key_id(platform))
    limit(platform, "concurrency", "none", 1000, scope=of_key)
    limit(platform, "tokens", "day", 10_000_000, scope=of_key)

    asyncio.run(limiting.leave_streams(platform, 40, num_connections=20))

    settled_rows(platform, before + 40)
    left = Counter(row.outcome for row in rows(platform)[before:])
    assert left.total() == 40
    # An answer that was complete before the client could leave is as good.
    assert left["client_gone"] > 0 and set(left) <= {"client_gone", "ok"}
    until(lambda: limiting.used_of_key(platform, "concurrency") == 0)
    until(lambda: limiting.used_of_key(platform, "tokens") == num_tokens(platform))
