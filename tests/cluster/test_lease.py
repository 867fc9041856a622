"""Leases of hosts: sessions on PostgreSQL, the lock of a file on SQLite."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connections
from django.db.backends.postgresql.base import DatabaseWrapper
from django.db.utils import load_backend

from tests import stores
from tests.conftest import until
from tests.relay import Relay
from vinery_platform.config import servers
from vinery_platform.config.home import Home
from vinery_serving.cluster import lease
from vinery_serving.cluster.lease import LEASE_S, HostLease, Lease


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
    # Pools go by this name: closing that of `default` would leave sessions of other tests open.
    wrapper = load_backend(found["ENGINE"]).DatabaseWrapper(found, "leases")
    monkeypatch.setattr(lease, "connection", wrapper)
    with django_db_blocker.unblock():
        yield wrapper
        wrapper.close_pool()


@pytest.mark.stores
@pytest.mark.usefixtures("wrapper")
def test_a_host_has_one_node_and_one_host_leads_also_after_an_outage(relay: Relay) -> None:
    first, second, copy = HostLease(1, "first"), HostLease(2, "second"), HostLease(2, "copy")
    assert [first.renew(), first.renew()] == [Lease(), Lease()]
    assert second.renew() == Lease(is_leader=False)
    refused = copy.renew()
    assert not refused.is_leader
    assert refused.other_holder == "second. If this home is a copy, delete the file `host` in it"

    relay.cut()
    for each in (first, second, copy):
        with pytest.raises(OperationalError):
            each.renew()
    relay.join()
    until(lambda: copy.renew() == Lease())
    assert first.renew() == Lease(is_leader=False)
    copy.close()
    until(lambda: first.renew() == Lease())
    first.close()


@pytest.mark.stores
@pytest.mark.usefixtures("wrapper")
def test_a_host_that_hangs_or_is_cut_off_leads_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server keeps its session: of a stopped process, or of one behind a proxy."""
    first = HostLease(1, "first")
    assert first.renew().is_leader
    monkeypatch.setattr(lease, "LEASE_S", 0.0)
    second = HostLease(2, "second")

    until(lambda: second.renew().is_leader)

    with pytest.raises(OperationalError):
        first.renew()
    assert first.renew() == Lease(is_leader=False)
    second.close()


@pytest.mark.stores
@pytest.mark.usefixtures("wrapper")
def test_a_lease_ends_some_time_after_its_host_but_not_in_an_outage_of_all(relay: Relay) -> None:
    now = [100.0]
    own, other = HostLease(1, "own", lambda: now[0]), HostLease(2, "other")
    other.renew()
    own.renew()
    assert own.is_renewed(2)
    assert own.ended([1, 2, 3]) == frozenset()

    other.close()
    until(lambda: own.renew() and not own.is_renewed(2))
    for _ in range(3):
        now[0] += (LEASE_S - 1) / 3
        own.renew()
    assert own.ended() == frozenset(), "a node that starts again keeps its replicas"
    now[0] += 2
    assert own.ended() == {2, 3}
    other.renew()
    own.renew()
    assert own.ended() == {3}

    relay.cut()
    with pytest.raises(OperationalError):
        own.renew()
    now[0] += 10 * LEASE_S
    relay.join()
    until(lambda: own.renew() == Lease())
    assert own.ended([1, 2, 3]) == frozenset(), "the others were cut off, too"
    for _ in range(3):
        now[0] += LEASE_S / 2
        own.renew()
    assert own.ended() == {2, 3}
    own.close()


@pytest.mark.stores
@pytest.mark.usefixtures("wrapper")
def test_no_lease_ends_when_the_database_answers_all_hosts_late(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No connection breaks, and the server has not heard of the others in the meantime."""
    monkeypatch.setattr(lease, "LEASE_S", 0.2)
    monkeypatch.setattr(lease, "_HELD_UP_S", 0.1)
    own, other = HostLease(1, "own"), HostLease(2, "other")
    other.renew()
    own.renew()
    relay.block()
    with ThreadPoolExecutor(1) as thread:
        late = thread.submit(own.renew)
        time.sleep(1.0)
        ended = own.ended()
        relay.unblock()
        late.result()
    assert ended == frozenset(), "a host that is held up knows nothing"
    assert own.ended() == frozenset(), "the others were held up, too"
    other.close()
    own.close()


def test_a_database_on_sqlite_has_one_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = {**connections["default"].settings_dict, "ENGINE": "django.db.backends.sqlite3"}
    found["NAME"] = str(tmp_path / "db.sqlite3")
    wrapper = load_backend(found["ENGINE"]).DatabaseWrapper(found, "default")
    monkeypatch.setattr(lease, "connection", wrapper)
    first, second = HostLease(1, "vinery node on moon"), HostLease(2, "second")
    assert [first.renew(), first.renew()] == [Lease(), Lease()]
    refused = second.renew()
    assert not refused.is_leader
    assert refused.other_holder == (
        "vinery node on moon. Several hosts need PostgreSQL: set DATABASE_URL"
    )
    first.close()
    assert second.renew() == Lease()
    second.close()
