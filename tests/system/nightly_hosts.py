"""Two hosts under load: one or both lose the database, the clock of one is set, and the hosts are
upgraded in turn. No request fails, and each is counted once."""

import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests import stores
from tests.conftest import REPOSITORY, Running, clean_environment, run_platform, until
from tests.false_clock import FalseClock
from tests.relay import Relay
from tests.system.clients import command
from tests.system.ledger import is_written, metric, rows
from tests.system.load import Load, load
from vinery_platform import __version__
from vinery_serving.transport.messages import PROTOCOL_VERSION

WITHIN_S = 240.0
ADDRESSES = {"moon": "127.0.0.1", "mars": "127.0.0.2"}
NEXT_VERSION = "99.0.0"
OUTAGE_S = 60.0
CLOCK_SHIFT_S = 600


class Hosts:
    """Each is a whole platform, and reaches the database on a way of its own."""

    def __init__(self, folder: Path) -> None:
        if not os.environ.get("VINERY_TEST_POSTGRES_URL"):
            pytest.skip("VINERY_TEST_POSTGRES_URL is not set, so there is no PostgreSQL")
        self._folder = folder
        self.database = stores.new_postgres_database()
        self._shared = {
            "REDIS_URL": stores.new_redis_database(),
            "VINERY_SECRET_KEY": "s" * 50,
            "VINERY_KEY_PEPPER_1": "p" * 50,
            "VINERY_WEB_WORKERS": "1",
        }
        self.ways = {name: Relay(self.database) for name in ADDRESSES}
        self._ends = {name: ExitStack() for name in ADDRESSES}

    def start(self, name: str, environment: Mapping[str, str]) -> Running:
        """The first start of all must be the one of `moon`, which has the first key."""
        home, address = self._folder / name, ADDRESSES[name]
        first = self._folder / "moon" / "bootstrap.json"
        if first.exists() and not home.exists():
            home.mkdir(mode=0o700)
            # The start of this host replaces the address, at which nobody answers.
            known = json.loads(first.read_text()) | {"base_url": f"http://{address}:9"}
            (home / first.name).write_text(json.dumps(known))
        with socket.create_server((address, 0)) as free:
            relay = f"{address}:{free.getsockname()[1]}"
        own = {
            "DATABASE_URL": self.ways[name].url,
            "VINERY_HOST_NAME": name,
            "VINERY_HOST": address,
            "VINERY_HOST_ADDRESS": relay,
        }
        running = run_platform(home, {**self._shared, **own, **environment})
        return self._ends[name].enter_context(running)

    def stop(self, name: str) -> None:
        self._ends[name].close()


@contextmanager
def hosts_in(folder: Path) -> Iterator[Hosts]:
    hosts = Hosts(folder)
    with ExitStack() as stack:
        for name in ADDRESSES:
            stack.callback(hosts.stop, name)
        yield hosts


def states(host: Running) -> dict[str, tuple[str, str]]:
    """The state and the models of each host, by name."""
    found = json.loads(command(host, "host", "list", "--json"))
    return {each["name"]: (each["state"], each["models"]) for each in found}


def become(host: Running, **wanted: tuple[str, str]) -> None:
    until(lambda: states(host) == wanted, timeout_s=WITHIN_S, pause_s=0.5)


SERVES = ("active", "tiny-chat (ready)")
SERVES_TWICE = ("active", "tiny-chat (ready), tiny-chat (ready)")


def until_on(hosts: Iterable[Running], is_so: Callable[[Running], object]) -> None:
    for host in hosts:
        until(partial(is_so, host), timeout_s=WITHIN_S)


def num_ready(host: Running) -> int:
    """The replicas on all hosts that serve."""
    return sum(models.count("(ready)") for _, models in states(host).values())


def spread(moon: Running, mars: Running, num_replicas: int = 2) -> dict[str, list[int]]:
    """Let the hosts run so many replicas, at most one each. Returns the engines by host."""
    until(
        lambda: [state for state, _ in states(moon).values()] == ["active", "active"],
        timeout_s=WITHIN_S,
    )
    command(moon, "model", "change", "tiny-chat", "--replicas", "1")
    until(lambda: len(moon.pids("engine") + mars.pids("engine")) == 1, timeout_s=WITHIN_S)
    command(moon, "model", "change", "tiny-chat", "--replicas", str(num_replicas))
    until(lambda: num_ready(moon) == num_replicas, timeout_s=WITHIN_S, pause_s=0.5)
    engines = {"moon": moon.pids("engine"), "mars": mars.pids("engine")}
    assert sum(map(len, engines.values())) == num_replicas
    assert max(map(len, engines.values())) == 1
    return engines


def check_unmoved(moon: Running, mars: Running, engines: Mapping[str, list[int]]) -> None:
    """Both hosts are active, and run these engines, also when one more has been placed."""
    num_replicas = sum(map(len, engines.values())) + 1
    command(moon, "model", "change", "tiny-chat", "--replicas", str(num_replicas))
    until(lambda: num_ready(moon) == num_replicas, timeout_s=WITHIN_S, pause_s=0.5)
    assert [state for state, _ in states(moon).values()] == ["active", "active"]
    found = {"moon": moon.pids("engine"), "mars": mars.pids("engine")}
    assert all(set(engines[each]) <= set(found[each]) for each in engines), (engines, found)
    assert sum(map(len, found.values())) == num_replicas


def assert_all_counted_once(moon: Running, mars: Running, num_answers: int) -> None:
    """`num_answers`: to the requests of all tests so far."""
    until_on((moon, mars), is_written)
    recorded = rows(moon)
    assert [each.outcome for each in recorded] == ["ok"] * num_answers
    assert len({each.request_id for each in recorded}) == num_answers


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with hosts_in(tmp_path_factory.mktemp("hosts")) as hosts:
        yield hosts


@pytest.fixture(scope="module")
def moon(hosts: Hosts) -> Running:
    return hosts.start("moon", {})


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> FalseClock:
    """Of mars."""
    return FalseClock(tmp_path_factory.mktemp("clock"))


@pytest.fixture(scope="module")
def mars(hosts: Hosts, moon: Running, clock: FalseClock) -> Running:
    return hosts.start("mars", clock.environment)


@contextmanager
def load_on(*platforms: Running) -> Iterator[list[Load]]:
    """At the end each request has been counted once, and no other."""
    before = len(rows(platforms[0]))
    with ExitStack() as stack:
        loads = [stack.enter_context(load(each)) for each in platforms]
        yield loads
        for each in loads:
            each.wait_for_more()
    assert_all_counted_once(*platforms, before + sum(each.num_answers for each in loads))


@contextmanager
def without_database(ways: Iterable[Relay], how: str) -> Iterator[None]:
    """Cut: connections are refused. Blocked: questions are taken, and nothing is answered."""
    leave, come_back = {"cut": (Relay.cut, Relay.join), "blocked": (Relay.block, Relay.unblock)}[
        how
    ]
    with ExitStack() as stack:
        for each in ways:
            leave(each)
            stack.callback(come_back, each)
        yield


@pytest.mark.parametrize(("which", "how"), [("moon", "cut")])
def test_a_host_without_the_database_serves_and_another_one_starts_more(
    hosts: Hosts, moon: Running, mars: Running, which: str, how: str
) -> None:
    platforms = {"moon": moon, "mars": mars}
    lost = platforms.pop(which)
    ((other, kept),) = platforms.items()
    engines = spread(moon, mars)
    with load_on(moon, mars) as loads:
        with without_database([hosts.ways[which]], how):
            until(lambda: metric(lost, "vinery_database_away"))
            until(lambda: len(kept.pids("engine")) == 2, timeout_s=WITHIN_S)
            become(kept, **{which: ("gone", ""), other: SERVES_TWICE})
            for each in loads:
                each.wait_for_more()
            assert lost.pids("engine") == engines[which], "the end of a lease stops no engine"
            assert set(engines[other]) < set(kept.pids("engine"))
        become(kept, **{which: SERVES, other: SERVES})
    until_on((lost, kept), lambda each: len(each.pids("engine")) == 1)


@pytest.mark.parametrize(
    ("how", "num_replicas", "killed"), [("cut", 1, ["node"]), ("blocked", 2, [])]
)
def test_hosts_that_lose_the_database_together_serve_and_move_nothing(
    hosts: Hosts, moon: Running, mars: Running, how: str, num_replicas: int, killed: list[str]
) -> None:
    """With one replica, a host answers with the engine of the other."""
    engines = spread(moon, mars, num_replicas)
    with load_on(moon, mars) as loads:
        with without_database(hosts.ways.values(), how):
            until_on((moon, mars), lambda each: metric(each, "vinery_database_away"))
            for role in killed:
                kill(moon, role)
                kill(mars, role)
            until_s = time.monotonic() + OUTAGE_S
            while time.monotonic() < until_s:
                for each in loads:
                    each.wait_for_more()
        check_unmoved(moon, mars, engines)


def kill(host: Running, role: str) -> None:
    killed = host.kill(role)
    until(lambda: host.has_replaced(role, killed), timeout_s=WITHIN_S)


def test_the_clock_of_a_host_is_set_forward_and_back(
    moon: Running, mars: Running, clock: FalseClock
) -> None:
    """New relays have certificates of the false time, and new nodes take their leases in it."""
    limit = ("--metric", "tokens", "--window", "day", "--amount", "10000000")
    command(moon, "limit", "set", "--platform", *limit)
    engines = spread(moon, mars)
    with load_on(moon, mars) as loads:
        for shift_s in (CLOCK_SHIFT_S, -CLOCK_SHIFT_S, 0):
            clock.set(shift_s)
            kill(moon, "relay")
            kill(mars, "relay")
            kill(mars, "node")
            until_on((moon, mars), lambda each: metric(each, "vinery_engine_ready") == 2)
            for each in loads:
                each.wait_for_more()
        check_unmoved(moon, mars, engines)


# -- Upgrades -------------------------------------------------------------------------------

_MIGRATION = """
from django.db import migrations

class Migration(migrations.Migration):
    dependencies = [("accounts", "{last}")]
    operations = [migrations.RunSQL("ALTER TABLE accounts_apikey ADD COLUMN newer integer NULL")]
"""


def next_version(folder: Path) -> dict[str, str]:
    """Write code with the next version of the protocol between hosts, and one more column. Returns
    the environment with which a platform runs it."""
    rooms = ("platform", "serving", "accounts")
    unread = shutil.ignore_patterns("__pycache__")
    for name in (*rooms, "templates"):
        shutil.copytree(REPOSITORY / name, folder / name, ignore=unread)
    for name in ("models", "pyproject.toml"):
        (folder / name).symlink_to(REPOSITORY / name)
    changes = {
        "platform/vinery_platform/__init__.py": (__version__, NEXT_VERSION),
        "serving/vinery_serving/transport/messages.py": (
            f"PROTOCOL_VERSION = {PROTOCOL_VERSION}\n",
            f"PROTOCOL_VERSION = {PROTOCOL_VERSION + 1}\n",
        ),
    }
    for name, (old, new) in changes.items():
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))
    migrations = folder / "accounts" / "vinery_accounts" / "migrations"
    last = max(each.stem for each in migrations.glob("0*.py"))
    (migrations / "9999_newer.py").write_text(_MIGRATION.format(last=last))
    code = os.pathsep.join(str(folder / each) for each in rooms)
    return {"PYTHONPATH": f"{code}{os.pathsep}{clean_environment()['PYTHONPATH']}"}


def versions(host: Running) -> dict[str, tuple[str, int]]:
    found = json.loads(command(host, "host", "list", "--json"))
    return {each["name"]: (each["version"], each["protocol_version"]) for each in found}


def test_hosts_are_upgraded_one_after_the_other_without_a_failed_request(tmp_path: Path) -> None:
    folder = tmp_path / "newer"
    folder.mkdir()
    newer = next_version(folder)
    with hosts_in(tmp_path) as hosts:
        moon = hosts.start("moon", {})
        mars = hosts.start("mars", {})
        spread(moon, mars)
        balancer = Relay(mars.base_url)
        # Clients with a balancer in between: one connection for each request.
        once = httpx.Client(limits=httpx.Limits(max_keepalive_connections=0), timeout=60)
        with load(replace(moon, base_url=balancer.url), http_client=once) as clients:

            def lead_to(host: Running) -> None:
                balancer.lead_to(host.base_url)
                clients.wait_for_more()

            def drain(name: str, host: Running) -> None:
                command(host, "host", "drain", name)
                until(lambda: not host.pids("engine"), timeout_s=WITHIN_S)

            def upgrade(name: str) -> Running:
                hosts.stop(name)
                host = hosts.start(name, newer)
                command(host, "host", "resume", name)
                return host

            drain("moon", moon)
            moon = upgrade("moon")
            of_both = (NEXT_VERSION, PROTOCOL_VERSION + 1), (__version__, PROTOCOL_VERSION)
            assert tuple(versions(mars)[each] for each in ("moon", "mars")) == of_both
            lead_to(moon)  # a newer web process, and engines of this version
            lead_to(mars)
            drain("mars", mars)
            clients.wait_for_more()  # a web process of this version, and newer engines
            lead_to(moon)
            mars = upgrade("mars")
            lead_to(mars)
            assert set(versions(moon).values()) == {(NEXT_VERSION, PROTOCOL_VERSION + 1)}
        assert_all_counted_once(moon, mars, clients.num_answers)
