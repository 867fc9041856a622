"""Services that tests here may use, if the machine has them."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg
import pytest


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """The URL of an empty PostgreSQL database that is dropped afterwards."""
    server = os.environ.get("VINERY_TEST_POSTGRES_URL")
    if not server:
        pytest.skip("VINERY_TEST_POSTGRES_URL is not set, so there is no PostgreSQL to test with")
    name = f"vinery_{uuid.uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield urlsplit(server)._replace(path=f"/{name}").geturl()
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def redis_url() -> str:
    """The URL of a Redis server."""
    url = os.environ.get("VINERY_TEST_REDIS_URL")
    if not url:
        pytest.skip("VINERY_TEST_REDIS_URL is not set, so there is no Redis to test with")
    return url
