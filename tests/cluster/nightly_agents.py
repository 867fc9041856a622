"""Two agents at once beside the nodes of two hosts, as processes, on a real cluster of Ray. They
need `vinery-platform[cluster]`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
import pytest

from tests import forked_commands, stores
from tests.conftest import REPOSITORY, clean_environment, until

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
        "RAY_ADDRESS": ray.address,
        "RAY_AUTH_MODE": "disabled",
    }
    found = {}
    with ExitStack() as stack:
        for name in HOSTS:
            home = tmp_path / name
            home.mkdir(mode=0o700)
            (home / "host").write_text(str(ids[name]))
            own = {"VINERY_HOME": str(home), "VINERY_HOST_NAME": name}
            found[name] = {**shared, **own}
            run(found[name], "prepare")
            stack.enter_context(running("node", found[name]))
        run(found["moon"], "model", "change", "tiny-chat", "--replicas", "2")
        yield found


def acting(environment: Environment) -> list[str]:
    """The hosts of the agents that place: the name of a session says so."""
    query = (
        "SELECT application_name FROM pg_stat_activity "
        "WHERE application_name LIKE 'vinery agent on %' AND datname = current_database()"
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

        placer = RayPlacer(ray.address)
        placer.connect()
        groups = Counter(each.key for each in placer.all())
        placer.leave()
        assert groups == Counter(
            {(model, replica): 1 for _, model, replica, *_ in placements(moon)}
        )
