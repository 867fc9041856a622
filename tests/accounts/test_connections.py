"""Connections outside of requests: a failed one is not used again, and a lock has one holder."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import OperationalError, connection, connections
from django.db.backends.postgresql.base import DatabaseWrapper
from django.db.utils import load_backend

from tests import stores
from tests.conftest import until
from tests.relay import Relay
from vinery_accounts.base import connections as own
from vinery_accounts.base.connections import DatabaseLock, giving_back
from vinery_platform.config import servers
from vinery_platform.config.home import Home


@pytest.mark.django_db(transaction=True)
def test_the_next_work_after_a_failure_has_another_connection() -> None:
    @giving_back
    def fail() -> None:
        connection.ensure_connection()
        broken.append(connection.connection)
        raise OperationalError("the connection is closed")

    broken: list[Any] = []
    with pytest.raises(OperationalError):
        fail()
    assert connection.connection is None
    connection.ensure_connection()
    assert connection.connection is not broken[0]


@pytest.fixture
def relay() -> Relay:
    if not os.environ.get("VINERY_TEST_POSTGRES_URL"):
        pytest.skip("VINERY_TEST_POSTGRES_URL is not set, so there is no PostgreSQL")
    return Relay(stores.new_postgres_database())


@pytest.fixture
def wrapper(
    relay: Relay, monkeypatch: pytest.MonkeyPatch, django_db_blocker: Any
) -> Iterator[DatabaseWrapper]:
    """The default database, behind the relay."""
    monkeypatch.setenv("DATABASE_URL", relay.url)
    defaults = {**connections["default"].settings_dict, "TEST": {}}
    found = defaults | servers.database(Home.from_env())
    wrapper = load_backend(found["ENGINE"]).DatabaseWrapper(found, "default")
    monkeypatch.setattr(own, "connection", wrapper)
    with django_db_blocker.unblock():
        yield wrapper
        wrapper.close_pool()


@pytest.mark.stores
@pytest.mark.usefixtures("wrapper")
def test_a_lock_has_one_holder_and_is_taken_again_after_an_outage(relay: Relay) -> None:
    first, second = DatabaseLock(7, "first"), DatabaseLock(7, "second")
    assert [first.other_holder(), first.other_holder()] == ["", ""]
    assert second.other_holder() == "first"
    assert DatabaseLock(8, "of other work").other_holder() == ""

    relay.cut()
    for each in (first, second):
        with pytest.raises(OperationalError):
            each.other_holder()
    relay.join()
    assert second.other_holder() == ""
    assert first.other_holder() == "second"
    second.close()
    until(lambda: first.other_holder() == "")
    first.close()
