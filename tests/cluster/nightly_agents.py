"""Two agents at once beside the nodes of two hosts, as processes, on a real cluster of Ray. They
need `vinery-platform[cluster]`."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from uuid import UUID, uuid4

import httpx
import psycopg
import pytest

from tests import forked_commands, stores
from tests.conftest import REPOSITORY, Running, clean_environment, until
from tests.system.load import Load, load

pytest.importorskip("ray", reason="needs vinery-platform[cluster]")

from tests.cluster.own_ray import OwnRay
from vinery_serving.cluster.ray_agent import RayPlacer

WITHIN_S = 240.0
COMMAND = (sys.executable, "-m", "vinery_platform.cli")
HOSTS = ("moon", "mars")
SERVES = "tiny-chat (ready)"

Environment = Mapping[str, str]


@contextmanager
def running(role: str, environment: Environment) -> Iterator[subprocess.Popen[bytes]]:
    with Path(f"{environment['VINERY_HOME']}-{role}.log").open("ab") as log:
        process = subprocess.Popen((*COMMAND, role), env=environment, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def run(environment: Environment, *words: str) -> str:
    done = forked_commands.run(*words, environment=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def ids() -> dict[str, UUID]:
    return {name: uuid4() for name in HOSTS}


@pytest.fixture
def ray(ids: Mapping[str, UUID]) -> Iterator[OwnRay]:
    with OwnRay({str(each): 100_000 for each in ids.values()}) as ray:
        yield ray


@pytest.fixture
def environments(
    tmp_path: Path, ids: Mapping[str, UUID], ray: OwnRay
) -> Iterator[dict[str, Environment]]:
    """Of the processes of each host. The nodes run."""
    if not os.environ.get("VINERY_TEST_POSTGRES_URL"):
        pytest.skip("VINERY_TEST_POSTGRES_URL is not set, so there is no PostgreSQL")
    shared = {
        **clean_environment(),
        "DATABASE_URL": stores.new_postgres_database(),
        "VINERY_SECRET_KEY": "s" * 50,
        "VINERY_KEY_PEPPER_1": "p" * 50,
        "VINERY_PLACEMENT": "ray",
        "RAY_AUTH_MODE": "disabled",
    }
    found = {}
    with ExitStack() as stack:
        for name in HOSTS:
            home = tmp_path / name
            home.mkdir(mode=0o700)
            (home / "host").write_text(str(ids[name]))
            own = {"VINERY_HOME": str(home), "VINERY_HOST_NAME": name}
            own["RAY_ADDRESS"] = ray.ways[str(ids[name])].address
            found[name] = {**shared, **own}
            run(found[name], "prepare")
            stack.enter_context(running("node", found[name]))
        run(found["moon"], "model", "change", "tiny-chat", "--replicas", "2")
        yield found


@contextmanager
def asking(environment: Environment) -> Iterator[Load]:
    """Clients of a web process of a host: none of them fails."""
    home = Path(environment["VINERY_HOME"])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    printed = run(environment, "key", "create", "--name", "of clients")
    key = next(word for word in printed.split() if word.startswith("vny_"))
    with running("web", {**environment, "VINERY_PORT": str(port)}) as web:
        url = f"http://127.0.0.1:{port}"
        until(lambda: models_of(url, key) == ["tiny-chat"], timeout_s=WITHIN_S)
        platform = Running(url, key, "", "", home, web.pid, Path(f"{home}-web.log"), environment)
        with load(platform) as clients:
            yield clients


def models_of(url: str, key: str) -> list[str]:
    with suppress(httpx.TransportError):
        answer = httpx.get(f"{url}/v1/models", headers={"authorization": f"Bearer {key}"})
        return [each["id"] for each in answer.json().get("data", ())]
    return []


def acting(environment: Environment) -> list[str]:
    """The hosts of the agents that place: they hold the lock, and the names of their sessions say
    that they reach Ray."""
    query = (
        "SELECT application_name FROM pg_stat_activity JOIN pg_locks USING (pid) "
        "WHERE application_name LIKE 'vinery agent on %' AND datname = current_database() "
        "AND locktype = 'advisory' AND granted"
    )
    with psycopg.connect(environment["DATABASE_URL"]) as connection:
        return [name.rpartition(" ")[2] for (name,) in connection.execute(query).fetchall()]


def placements(environment: Environment) -> set[tuple[object, ...]]:
    with psycopg.connect(environment["DATABASE_URL"]) as connection:
        query = "SELECT id, model_id, replica, host_id, pid FROM serving_placement"
        return set(connection.execute(query).fetchall())


def models(environment: Environment) -> dict[str, str]:
    found = json.loads(run(environment, "host", "list", "--json"))
    return {each["name"]: each["models"] for each in found}


def test_of_two_agents_one_places_and_the_other_takes_over_without_moving_anything(
    environments: dict[str, Environment], ray: OwnRay
) -> None:
    moon = environments["moon"]
    with ExitStack() as stack:
        agents = {
            name: stack.enter_context(running("agent", each)) for name, each in environments.items()
        }
        until(lambda: models(moon) == dict.fromkeys(HOSTS, SERVES), timeout_s=WITHIN_S)
        placed = placements(moon)
        (first,) = acting(moon)

        agents[first].kill()
        (second,) = set(HOSTS) - {first}
        until(lambda: acting(moon) == [second], timeout_s=WITHIN_S)
        again = stack.enter_context(running("agent", environments[first]))
        folder = REPOSITORY / "models" / "tiny-chat"
        run(moon, "model", "add", str(folder), "--name", "b")
        run(moon, "model", "change", "b", "--replicas", "2")
        both = dict.fromkeys(HOSTS, f"b (ready), {SERVES}")
        until(lambda: models(moon) == both, timeout_s=WITHIN_S)
        assert placements(moon) > placed, "what ran stays where it is"
        assert acting(moon) == [second]
        assert again.poll() is None, "the first one waits"

        assert groups(ray) == Counter(
            (model, replica) for _, model, replica, *_ in placements(moon)
        )


def groups(ray: OwnRay) -> Counter[object]:
    return Counter(key for key, _ in look(ray)[0])


def hosts_in(ray: OwnRay) -> Collection[str]:
    return look(ray)[1]


def look(ray: OwnRay) -> tuple[list[tuple[object, str | None]], Collection[str]]:
    """The groups with their hosts, and the hosts whose Ray nodes live."""
    placer = RayPlacer(ray.address)
    placer.connect()
    found = [(each.key, each.host) for each in placer.all()]
    hosts = placer.hosts
    placer.leave()
    return found, hosts


def test_a_host_that_is_cut_off_from_ray_serves_while_another_agent_places(
    environments: dict[str, Environment], ids: Mapping[str, UUID], ray: OwnRay
) -> None:
    moon = environments["moon"]
    folder = REPOSITORY / "models" / "tiny-chat"
    with ExitStack() as stack:
        agents = {
            name: stack.enter_context(running("agent", each)) for name, each in environments.items()
        }
        until(lambda: models(moon) == dict.fromkeys(HOSTS, SERVES), timeout_s=WITHIN_S)
        placed = placements(moon)
        (cut_off,) = acting(moon)
        (other,) = set(HOSTS) - {cut_off}
        clients = stack.enter_context(asking(environments[cut_off]))
        id_ = str(ids[cut_off])

        ray.ways[id_].cut()
        until(lambda: acting(moon) == [other], timeout_s=WITHIN_S)
        until(lambda: not ray.has_node(id_), timeout_s=WITHIN_S)
        until(lambda: id_ not in hosts_in(ray), timeout_s=WITHIN_S)
        run(moon, "model", "add", str(folder), "--name", "b")
        expected = {cut_off: SERVES, other: f"b (ready), {SERVES}"}
        until(lambda: models(moon) == expected, timeout_s=WITHIN_S)
        clients.wait_for_more()
        assert placements(moon) > placed, "what ran stays where it is"

        ray.ways[id_].join()
        ray.start_node(id_)
        if agents[cut_off].poll() is not None:
            stack.enter_context(running("agent", environments[cut_off]))
        run(moon, "model", "change", "b", "--replicas", "2")
        both = dict.fromkeys(HOSTS, f"b (ready), {SERVES}")
        until(lambda: models(moon) == both, timeout_s=WITHIN_S)
        clients.wait_for_more()
        assert placements(moon) > placed
        hosts = {(model, replica): str(host) for _, model, replica, host, _ in placements(moon)}
        until(lambda: sorted(look(ray)[0]) == sorted(hosts.items()), timeout_s=WITHIN_S)
