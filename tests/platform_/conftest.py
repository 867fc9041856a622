"""Databases of external services, without which tests are skipped, a home for commands, and servers
for raw HTTP."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache, partial
from subprocess import CompletedProcess

import pytest

from tests import forked_commands, prepared_home, stores
from tests.conftest import clean_environment
from tests.platform_.edge_server import EdgeServer, run_edge_server

Vinery = Callable[..., CompletedProcess[str]]


@pytest.fixture
def postgres_url() -> str:
    """The URL of an empty PostgreSQL database that is dropped afterwards."""
    if not os.environ.get("VINERY_TEST_POSTGRES_URL"):
        pytest.skip("VINERY_TEST_POSTGRES_URL is not set, so there is no PostgreSQL to test with")
    return stores.new_postgres_database()


@pytest.fixture
def redis_url() -> str:
    """The URL of an empty database of a Redis server."""
    if not os.environ.get("VINERY_TEST_REDIS_URL"):
        pytest.skip("VINERY_TEST_REDIS_URL is not set, so there is no Redis to test with")
    return stores.new_redis_database()


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a prepared home for all tests of a module."""
    home, clean = tmp_path_factory.mktemp("installation") / "home", clean_environment()
    return clean | prepared_home.copy_to(home, clean)


@pytest.fixture(scope="module")
def vinery(installation: dict[str, str]) -> Vinery:
    """The command in this home."""
    return partial(forked_commands.run, environment=installation)


@pytest.fixture(scope="module")
def shared() -> Iterator[Callable[..., EdgeServer]]:
    """Starts one server with these limits, for tests that do not change its state."""
    with ExitStack() as stack:

        @cache
        def start(**limits: float) -> EdgeServer:
            return stack.enter_context(run_edge_server(**limits))

        yield start


@pytest.fixture(scope="module")
def server(shared: Callable[..., EdgeServer]) -> EdgeServer:
    """The server with the usual limits."""
    return shared()
