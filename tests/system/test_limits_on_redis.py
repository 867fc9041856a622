"""One limit over several web processes, counted in Redis, also while Redis is unavailable."""

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.conftest import Running, run_platform, until
from tests.own_redis import OwnRedis
from tests.system import limiting
from tests.system.clients import MODEL, command, post
from tests.system.ledger import metric, wait_until_seen
from tests.system.limiting import LONG, ask, limit, settled_rows

pytestmark = pytest.mark.stores

NUM_WEB_PROCESSES = 2


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnRedis]:
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("there is no redis-server on the path")
    with OwnRedis(program, tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory, redis_server: OwnRedis) -> Iterator[Running]:
    """Refuses requests that cannot be counted, so that each served request is counted here."""
    settings = {
        "REDIS_URL": redis_server.url,
        "VINERY_WEB_WORKERS": str(NUM_WEB_PROCESSES),
        "VINERY_LIMITS_WHEN_AWAY": "refuse",
    }
    with run_platform(tmp_path_factory.mktemp("scaled") / "home", settings) as running:
        yield running


no_limits = limiting.no_limits


def test_each_end_user_has_a_quota_alone_in_all_processes(platform: Running) -> None:
    limit(platform, "requests", "day", 2, scope=("--end-users-of", "default"))
    wait_until_seen(platform)
    names: list[dict[str, str]] = [{"user": "ann"}, {"safety_identifier": "ann"}]

    statuses = [ask(platform, **name).status_code for name in (*names, *names)]

    assert statuses == [200, 200, 429, 429]
    assert {ask(platform, **each).status_code for each in ({"user": "bob"}, {}, {}, {})} == {200}
    body = {"model": MODEL, "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}
    message = post(platform, "/v1/messages", {**body, "metadata": {"user_id": "ann"}})
    assert message.status_code == 429
    assert "each end user of this key's project" in message.json()["error"]["message"]


def test_a_lost_redis_is_reported_and_recovers(platform: Running, redis_server: OwnRedis) -> None:
    limit(platform, "requests", "minute", 1000)
    assert health(platform)["limits"] == "counted"
    assert health(platform)["redis"].startswith("answered ")
    assert "redis       answered " in command(platform, "status")
    assert metric(platform, "vinery_limits_store_away") == 0

    redis_server.stop()
    try:
        until(lambda: metric(platform, "vinery_limits_store_away") == NUM_WEB_PROCESSES)
        assert health(platform)["limits"] == "Redis is unavailable: refuse"
        assert health(platform)["redis"].startswith("unavailable, answered ")
        assert Counter(ask(platform).status_code for _ in range(10)) == {503: 10}
    finally:
        redis_server.start()

    until(lambda: metric(platform, "vinery_limits_store_away") == 0)
    assert health(platform)["limits"] == "counted"
    assert ask(platform).status_code == 200


def test_a_redis_without_data_gets_usage_again(platform: Running, redis_server: OwnRedis) -> None:
    limit(platform, "tokens", "hour", 400)
    assert ask(platform, **LONG).status_code == 200
    settled_rows(platform, 0)

    redis_server.stop()
    try:
        until(lambda: metric(platform, "vinery_limits_store_away") == NUM_WEB_PROCESSES)
    finally:
        redis_server.start()
    until(lambda: metric(platform, "vinery_limits_store_away") == 0)
    wait_until_seen(platform)

    refused = ask(platform, **LONG)
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert "x-should-retry" not in refused.headers


def test_what_runs_without_redis_counts_also_after_a_kill(
    tmp_path: Path, redis_server: OwnRedis
) -> None:
    settings = {"REDIS_URL": redis_server.url.removesuffix("0") + "1"}
    with run_platform(tmp_path / "home", settings) as platform:
        limit(platform, "requests", "day", 5)
        limit(platform, "requests", "hour", 6)
        wait_until_seen(platform)
        assert ask(platform).status_code == 200

        redis_server.stop()
        try:
            num_processes = len(platform.pids("web"))
            until(lambda: metric(platform, "vinery_limits_store_away") == num_processes)
            assert health(platform)["limits"] == "Redis is unavailable: allow"
            assert Counter(ask(platform).status_code for _ in range(6)) == {200: 6}
            killed = platform.kill("web")
            until(lambda: platform.pids("web") not in ([], killed))
            until(lambda: starts_to_answer(platform))  # without Redis
        finally:
            redis_server.start()

        until(lambda: metric(platform, "vinery_limits_store_away") == 0)
        assert ask(platform).json()["error"]["code"] == "insufficient_quota"
        limiting.remove_limits(platform, window="day")
        assert ask(platform).json()["error"]["code"] == "rate_limit_exceeded"


def starts_to_answer(platform: Running) -> bool:
    try:
        return ask(platform).status_code == 200
    except httpx.TransportError:
        return False


def health(platform: Running) -> dict[str, str]:
    response = httpx.get(f"{platform.base_url}/readyz", timeout=30)
    assert response.status_code == 200
    return dict(response.json())
