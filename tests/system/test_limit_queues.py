"""A short wait in a fair line instead of a refusal, with real clients and the real engine."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.conftest import Running, run_platform, until
from tests.system import limiting
from tests.system.clients import MODEL, new_key, openai_of, platform_with
from tests.system.ledger import execute, metric, rows, wait_until_seen
from tests.system.limiting import limit, long_stream, settled_rows, stopped

pytestmark = pytest.mark.system

SETTINGS = {
    # Much longer than all that are in line here need, on a busy machine too.
    "VINERY_LIMITS_QUEUE_S": "60",
    "VINERY_WEB_WORKERS": "1",
    "VINERY_HUNG_AFTER_S": "0",  # tests stop the engine
}
# With one web process: each process has its own queues.
platform = platform_with(**SETTINGS)
# Rows are written in the order in which requests end.
NAMES_BY_END = "SELECT key_name FROM accounts_usagerecord ORDER BY id"


@pytest.fixture(scope="module")
def ann(platform: Running) -> openai.OpenAI:
    return openai_of(platform, new_key(platform, "ann"))


@pytest.fixture(scope="module")
def ben(platform: Running) -> openai.OpenAI:
    return openai_of(platform, new_key(platform, "ben"))


no_limits = limiting.no_limits


def test_a_bucket_that_is_empty_is_waited_for(
    platform: Running, ann: openai.OpenAI, ben: openai.OpenAI
) -> None:
    limit(platform, "requests", "minute", 13)
    before = settled_rows(platform, 0)

    with ThreadPoolExecutor(14) as clients:
        # One refills in five seconds, and one more is asked for than it holds.
        asked = [clients.submit(ask, each) for each in [ann, ben] * 7]
        headers = [each.result().headers for each in asked]

    assert {each["x-ratelimit-limit-requests"] for each in headers} == {"13"}
    assert max(int(each["x-ratelimit-remaining-requests"]) for each in headers) < 13
    settled_rows(platform, before + 14)
    assert statuses(platform, before) == {200: 14}


def test_the_lines_of_two_keys_are_served_in_turn_and_who_leaves_one_is_not_served(
    platform: Running, ann: openai.OpenAI, ben: openai.OpenAI
) -> None:
    limit(platform, "concurrency", "none", 1)
    before = settled_rows(platform, 0)

    with ThreadPoolExecutor(6) as clients:
        with slot_taken(platform):
            asked = [clients.submit(ask, ann) for _ in range(4)]
            until_in_line(platform, 4)
            asked += [clients.submit(ask, ben) for _ in range(2)]
            until_in_line(platform, 6)
        for each in asked:
            each.result()

    settled_rows(platform, before + 7)
    assert statuses(platform, before) == {200: 6}
    # One at a time, so that they end in the order in which they were let in.
    _, *names = [name for (name,) in execute(platform, NAMES_BY_END)][before:]
    assert names == ["ann", "ben", "ann", "ben", "ann", "ann"]

    before = settled_rows(platform, 0)
    with slot_taken(platform):
        with pytest.raises(openai.APITimeoutError):
            ask(ann.with_options(timeout=2))
        until(lambda: metric(platform, "vinery_requests_live") == 1)

    ask(ben)
    settled_rows(platform, before + 3)
    assert statuses(platform, before) == {499: 1, 200: 1}


def test_who_waits_longer_than_it_may_is_refused(tmp_path: Path) -> None:
    with run_platform(tmp_path / "home", {**SETTINGS, "VINERY_LIMITS_QUEUE_S": "1"}) as platform:
        ann = openai_of(platform, new_key(platform, "ann"))
        limit(platform, "concurrency", "none", 1)

        with slot_taken(platform), pytest.raises(openai.RateLimitError) as refused:
            ask(ann)

        assert refused.value.code == "rate_limit_exceeded"
        assert int(refused.value.response.headers["retry-after-ms"]) > 0
        until(lambda: metric(platform, "vinery_requests_live") == 0)
        ask(ann)
        settled_rows(platform, 3)
        assert statuses(platform, 0) == {200: 1, 429: 1}


def ask(who: openai.OpenAI) -> Any:
    return who.completions.with_raw_response.create(model=MODEL, prompt="one", max_tokens=1)


@contextmanager
def slot_taken(platform: Running) -> Iterator[None]:
    """By a stream that does not end meanwhile, because the engine stands still."""
    engines = platform.pids("engine")
    with openai_of(platform) as holder:
        stream = long_stream(holder)
        try:
            with stopped(engines):
                assert metric(platform, "vinery_requests_live") == 1  # it has not ended already
                yield
        finally:
            stream.close()


def until_in_line(platform: Running, num: int) -> None:
    """So many requests wait, beside the one that has the slot."""
    until(lambda: metric(platform, "vinery_requests_live") == 1 + num)
    # They have arrived. After the next refresh of limits they have asked for a slot.
    wait_until_seen(platform)


def statuses(platform: Running, since: int) -> Counter[int | None]:
    """Ann's and Ben's, of the rows after the first `since`."""
    asked = [row for row in rows(platform)[since:] if row.key_name in ("ann", "ben")]
    return Counter(row.http_status for row in asked)
