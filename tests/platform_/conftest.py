"""Databases of external services. Tests are skipped if the machine lacks the service."""

from __future__ import annotations

import os

import pytest

from tests import stores


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
