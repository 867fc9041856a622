"""A web process is killed and reloaded while PostgreSQL, Redis or both are away, and goes on from
sealed copies: keys, models and limits hold, and all usage arrives afterwards."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import httpx
import pytest

from tests import forked_commands, stores
from tests.conftest import Running, run_platform, until
from tests.relay import Relay
from tests.system.clients import chat, new_key, vinery
from tests.system.ledger import execute, metric, rows

pytestmark = pytest.mark.stores


@dataclass(frozen=True)
class Servers:
    database: Relay
    redis: Relay


@pytest.fixture(scope="module")
def servers() -> Servers:
    if not {"VINERY_TEST_POSTGRES_URL", "VINERY_TEST_REDIS_URL"} <= os.environ.keys():
        pytest.skip("there is no PostgreSQL and no Redis to lose")
    return Servers(Relay(stores.new_postgres_database()), Relay(stores.new_redis_database()))


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory, servers: Servers) -> Iterator[Running]:
    settings = {
        "DATABASE_URL": servers.database.url,
        "REDIS_URL": servers.redis.url,
        "VINERY_WEB_WORKERS": "1",
    }
    with run_platform(tmp_path_factory.mktemp("outages") / "home", settings) as running:
        yield running


@dataclass(frozen=True)
class Keys:
    spent: str  # its only request of the day has run
    revoked: str


@pytest.fixture(scope="module")
def keys(platform: Running) -> Keys:
    keys = Keys(new_key(platform, "spent"), new_key(platform, "revoked"))
    ids = dict(execute(platform, "SELECT name, id FROM accounts_apikey"))
    what = ("--metric", "requests", "--window", "day", "--amount", "1")
    vinery(platform, "limit", "set", "--key", str(ids["spent"]), *what)
    vinery(platform, "key", "revoke", str(ids["revoked"]))
    assert chat(platform, key=keys.spent, max_tokens=3).status_code == 200
    return keys


@contextmanager
def outage(platform: Running, servers: Servers, which: str) -> Iterator[None]:
    """Cut: connections are refused. Blocked: questions are taken, and nothing is answered."""
    relays = {"database": [servers.database], "redis": [servers.redis]}
    relays["both"] = [*relays["database"], *relays["redis"]]
    what, how = which.split()
    ways = {"cut": (Relay.cut, Relay.join), "blocked": (Relay.block, Relay.unblock)}
    leave, come_back = ways[how]
    with ExitStack() as stack:
        for relay in relays[what]:
            leave(relay)
            stack.callback(come_back, relay)
        is_away = "vinery_limits_store_away" if what == "redis" else "vinery_database_away"
        until(lambda: metric(platform, is_away))
        yield
    for name in ("vinery_database_away", "vinery_limits_store_away"):
        until(lambda name=name: metric(platform, name) == 0, timeout_s=60)  # type: ignore[misc]


@pytest.mark.parametrize("which", ["database blocked", "redis blocked", "both cut"])
def test_a_killed_and_reloaded_web_process_serves_as_before(
    platform: Running, servers: Servers, keys: Keys, which: str
) -> None:
    # Redis counts on; without Redis the policy is to allow.
    of_spent = 429 if which.startswith("database") else 200
    answers: dict[str, int] = {}

    def ask(key: str = "") -> int:
        try:
            response = chat(platform, "Count to 10.", key=key, max_tokens=3)
        except httpx.TransportError:
            return 0
        answers[response.headers["x-request-id"]] = response.status_code
        return response.status_code

    with outage(platform, servers, which):
        killed = platform.kill("web")
        until(lambda: platform.has_replaced("web", killed))
        until(lambda: ask() == 200)
        assert ask(keys.spent) == of_spent

        web = platform.pids("web")
        done = forked_commands.run("reload", environment=platform.environment)
        assert (done.returncode, done.stderr) == (0, "")
        until(lambda: not set(platform.pids("web")) & set(web))
        assert (ask(), ask(keys.spent), ask(keys.revoked)) == (200, of_spent, 401)
        report = httpx.get(f"{platform.base_url}/readyz", timeout=30).json()
        assert report["status"] == "degraded"

    assert ask(keys.spent) == 429
    served = {request_id for request_id, status in answers.items() if status == 200}
    # A job recovers the journals of ended processes once a minute.
    until(lambda: served <= {row.request_id for row in rows(platform)}, timeout_s=150)
