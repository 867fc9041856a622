"""Both implementations of the limiter, made by the same call, on a fake clock."""

import os
import shutil
import uuid
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from redis.asyncio import Redis

from tests.fakes.clock import FakeClock
from tests.own_redis import OwnRedis
from vinery_accounts.limits.memory import MemoryLimiter
from vinery_accounts.limits.redis import RedisLimiter, connect
from vinery_accounts.limits.reservations import Limiter
from vinery_accounts.limits.service import FailoverLimiter, UnavailablePolicy

# Makes so many limiters on one store, as several web processes do.
Fresh = Callable[[int], list[Limiter]]
MakeFailover = Callable[..., FailoverLimiter]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(scope="session")
def redis_program() -> str:
    """The path of the server, for tests that start and stop one."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("there is no redis-server on the path")
    return program


@pytest.fixture(scope="session")
def redis_url(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The URL of the named Redis server, or of a new server."""
    if url := os.environ.get("VINERY_TEST_REDIS_URL"):
        yield url
        return
    program = request.getfixturevalue("redis_program")
    with OwnRedis(program, tmp_path_factory.mktemp("redis")) as own:
        yield own.url


@pytest.fixture
async def redis_client(redis_url: str) -> AsyncIterator[Redis]:
    # A busy machine must not look like a dead server.
    client = connect(redis_url, deadline_s=60.0)
    yield client
    await client.aclose()


@pytest.fixture
def redis_fresh(redis_client: Redis, clock: FakeClock) -> Fresh:
    """Makes limiters on Redis that share a new store."""

    def make(num: int) -> list[Limiter]:
        prefix = f"test:{uuid.uuid4().hex}:"
        return [RedisLimiter(redis_client, prefix=prefix, clock=clock) for _ in range(num)]

    return make


@pytest.fixture
def memory_fresh(clock: FakeClock) -> Fresh:
    """Makes a limiter in memory, which all share."""

    def make(num: int) -> list[Limiter]:
        return [MemoryLimiter(clock=clock)] * num

    return make


@pytest.fixture(params=["memory", "redis"])
def fresh(request: pytest.FixtureRequest) -> Fresh:
    """Makes limiters that share a new store."""
    made: Fresh = request.getfixturevalue(f"{request.param}_fresh")
    return made


@pytest.fixture
def limiter(fresh: Fresh) -> Limiter:
    return fresh(1)[0]


@pytest.fixture
async def failover(clock: FakeClock) -> AsyncIterator[MakeFailover]:
    """Makes failover limiters, and closes them afterwards."""
    made: list[FailoverLimiter] = []

    def make(store: Limiter, policy: UnavailablePolicy, **more: float) -> FailoverLimiter:
        waits = {"deadline_s": 5.0, "probe_interval_s": 0.005, **more}
        made.append(FailoverLimiter(store, policy, clock=clock, **waits))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for limiter in made:
        await limiter.close()
