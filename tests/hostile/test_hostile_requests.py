"""The corpus of hostile requests, sent to a platform beside a neighbour that asks ten times a
second: every request is answered or refused, refusals name their field, none costs the web
process more than a bound of time and memory, and all of the neighbour's are served.

Nothing here is measured by the clock: `python -m benchmarks.hostile` does that, and sends all of
the corpus. Here a part of it is sent, which `VINERY_TEST_SEED` chooses: cases of each field.
"""

from __future__ import annotations

import math
import os
import random
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import httpx
import psycopg
import pytest

from benchmarks.hostile.case import Case
from benchmarks.hostile.clients import Client, clients
from benchmarks.hostile.corpus import corpus
from benchmarks.hostile.corpus.fields import fields
from benchmarks.hostile.send import Target, fault_of, send
from benchmarks.hostile.watch import Neighbour, Web, neighbour_of
from tests.conftest import Running, run_platform, until
from tests.system.commands import vinery
from tests.system.ledger import rows
from tests.system.limiting import ask
from vinery_serving.protocols.openapi.document import document

LEAST_CASES: Final = 400
# CPU seconds of the web processes for one request: the worst need 1.2, on two processors that other
# tests keep busy.
MOST_CPU_S: Final = 2.0
NUM_TRIES: Final = 3
# Of one core, when only the neighbour asks.
MOST_BUSY: Final = 0.5
# Of each web process, a minute after the last request. One request took gigabytes, and kept them.
MOST_GROWN_MB: Final = 150.0
MOST_SHOWN: Final = 30


@cache
def cases() -> tuple[Case, ...]:
    return corpus(document(version="1", max_body_mb=64))


# The part of the cases of a field, or of a kind that costs much, that is sent here. Others: all.
FIELD_PART: Final = 0.25
KIND_PARTS: Final = {"prompt": 0.5, "schema": 0.5, "grammar": 0.5}


@cache
def sample() -> tuple[Case, ...]:
    """The cases that are sent here, in the order of the corpus."""
    groups: defaultdict[str, list[Case]] = defaultdict(list)
    for case in cases():
        if not case.is_extra:
            groups[field_of(case) or case.kind].append(case)
    draw = random.Random(os.environ.get("VINERY_TEST_SEED", "1"))
    drawn = {
        case.name
        for group in groups.values()
        for case in draw.sample(group, math.ceil(part_of(group[0]) * len(group)))
    }
    return tuple(case for case in cases() if case.name in drawn)


def part_of(case: Case) -> float:
    return FIELD_PART if field_of(case) else KIND_PARTS.get(case.kind, 1.0)


def field_of(case: Case) -> str:
    """The field that a case was made for; empty for one that was written by hand."""
    return case.name.partition(": ")[0] if case.kind.startswith("field: ") else ""


KINDS: Final = sorted({case.kind for case in sample()})


# -- The corpus itself --------------------------------------------------------------------


def test_the_corpus_has_a_case_of_every_field_of_the_document() -> None:
    sent = {case.name.partition(": ")[0] for case in cases() if not case.is_extra}
    by_any_path = {name.partition(" ")[2] for name in sent}
    every = {field.name for field in fields(document(version="1", max_body_mb=64))}

    assert every <= by_any_path
    assert len(every) > 200


def test_the_corpus_has_the_fields_of_every_body_of_the_document() -> None:
    contents = document(version="1", max_body_mb=64)
    schemas = contents["components"]["schemas"]
    found = {(field.path, field.name) for field in fields(contents)}

    for path, body in (
        ("/v1/chat/completions", "ChatBody"),
        ("/v1/completions", "CompletionsBody"),
        ("/v1/responses", "ResponsesBody"),
        ("/v1/messages", "MessagesBody"),
        ("/v1/tokenize", "TokenizeBody"),
        ("/v1/detokenize", "DetokenizeBody"),
    ):
        assert {(path, name) for name in schemas[body]["properties"]} <= found


def test_the_corpus_is_large_and_its_names_are_unique() -> None:
    names = [case.name for case in cases()]

    assert len(names) == len(set(names))
    assert sum(not case.is_extra for case in cases()) >= LEAST_CASES


def test_enough_of_the_corpus_is_sent_here_with_each_field_and_kind() -> None:
    assert len(sample()) >= LEAST_CASES
    all_cases = [case for case in cases() if not case.is_extra]
    for of in (field_of, lambda case: case.kind):
        assert {of(case) for case in sample()} == {of(case) for case in all_cases}


# -- Sent to a platform -------------------------------------------------------------------


@dataclass(frozen=True)
class Besieged:
    """A platform of these tests alone, with its neighbour."""

    running: Running
    target: Target
    neighbour: Neighbour
    web: Web
    memory_mb: Mapping[int, float]  # of each web process before the first request


@pytest.fixture(scope="module")
def besieged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Besieged]:
    with run_platform(tmp_path_factory.mktemp("besieged") / "home") as running:
        vinery(running, "organization", "create", "neighbours")
        vinery(running, "project", "create", "quiet", "--organization", "neighbours")
        made = vinery(running, "key", "create", "--name", "quiet", "--project", "neighbours/quiet")
        scopes = [word for name in ("inference", "usage", "manage") for word in ("--scope", name)]
        hostile = vinery(running, "key", "create", "--name", "hostile", *scopes).split()[-1]
        warm_up(running)
        with neighbour_of(running.base_url, made.split()[-1]) as neighbour:
            web = Web.of(running.pid)
            target = Target(running.base_url, hostile)
            yield Besieged(running, target, neighbour, web, web.memory_of_each_mb())


def warm_up(running: Running) -> None:
    """What is loaded with the first request of a kind is no growth."""
    key = {"authorization": f"Bearer {running.api_key}"}
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
    for path, content in (
        ("/v1/chat/completions", body),
        ("/v1/chat/completions", {**body, "guided_json": schema}),
        ("/v1/tokenize", {"prompt": "word " * 10_000}),
        ("/openapi.json", None),
        ("/accounts/login/", None),
    ):
        method = "GET" if content is None else "POST"
        url = running.base_url + path
        answer = httpx.request(method, url, json=content, headers=key, timeout=60)
        assert answer.status_code == 200, answer.text


@pytest.mark.system
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS)
def test_hostile_requests_are_bounded(besieged: Besieged, kind: str) -> None:
    chosen = [case for case in sample() if case.kind == kind]

    check(besieged, [(case, fault_of_case(besieged, case)) for case in chosen])


@pytest.mark.system
@pytest.mark.timeout(300)
@pytest.mark.parametrize("client", clients(), ids=lambda client: client.name)
def test_hostile_clients_are_bounded(besieged: Besieged, client: Client) -> None:
    begun_s, cpu_s = time.monotonic(), besieged.web.cpu_s()

    client.act(besieged.target, 1)
    until(lambda: is_idle(besieged), timeout_s=60)

    assert besieged.web.cpu_s() - cpu_s < 10 * MOST_CPU_S
    assert failures_of_neighbour(besieged, begun_s) == []


@pytest.mark.system
def test_requests_beside_a_locked_database_are_answered_and_recorded(besieged: Besieged) -> None:
    running = besieged.running
    with locked_database(running):
        answers = [ask(running, max_tokens=1) for _ in range(20)]

    assert {answer.status_code for answer in answers} == {200}
    ids = {answer.headers["x-request-id"] for answer in answers}
    until(lambda: ids <= {row.request_id for row in rows(running)})
    assert sum(row.request_id in ids for row in rows(running)) == len(ids)


@contextmanager
def locked_database(running: Running) -> Iterator[None]:
    """No other process writes to the database, whichever it is."""
    if server := running.environment.get("DATABASE_URL"):
        with psycopg.connect(server) as database:
            database.execute("LOCK TABLE accounts_usagerecord IN ACCESS EXCLUSIVE MODE")
            yield
        return
    file = running.home / "vinery.sqlite3"
    with closing(sqlite3.connect(file, timeout=30, isolation_level=None)) as database:
        database.execute("BEGIN EXCLUSIVE")
        yield
        database.execute("ROLLBACK")


@pytest.mark.system
def test_nothing_is_left_of_it(besieged: Besieged) -> None:
    """After all of it: no process works on, the memory is given back, no web process was replaced,
    and the log has no traceback."""
    until(lambda: is_idle(besieged), timeout_s=60)
    until(lambda: most_grown_mb(besieged) < MOST_GROWN_MB, timeout_s=60)

    assert besieged.web.memory_of_each_mb().keys() == besieged.memory_mb.keys()
    log = besieged.running.log.read_text(encoding="utf-8", errors="replace")
    assert "Traceback" not in log


def most_grown_mb(besieged: Besieged) -> float:
    each_mb = besieged.web.memory_of_each_mb().items()
    return max(mb - besieged.memory_mb.get(pid, 0.0) for pid, mb in each_mb)


def fault_of_case(besieged: Besieged, case: Case) -> str | None:
    """A case that costs too much, or is ended for its cost, is sent again: what else the machine
    does may count for it."""
    fault, cost_s = None, 0.0
    for _ in range(NUM_TRIES):
        cpu_s = besieged.web.cpu_s()
        fault = fault_of(case, send(besieged.target, case))
        cost_s = besieged.web.cpu_s() - cpu_s
        if fault is None and cost_s <= MOST_CPU_S:
            return None
    return fault or f"took {cost_s:.1f} CPU seconds"


def check(besieged: Besieged, results: Sequence[tuple[Case, str | None]]) -> None:
    begun_s = time.monotonic()
    faults = [f"{case.name}: {fault}" for case, fault in results if fault is not None]
    besieged.neighbour.wait_for(4, begun_s)

    assert not faults, "\n".join([f"{len(faults)} of {len(results)}", *faults[:MOST_SHOWN]])
    assert failures_of_neighbour(besieged, 0.0) == []
    assert until(lambda: is_idle(besieged), timeout_s=60)


def failures_of_neighbour(besieged: Besieged, begun_s: float) -> list[Any]:
    """Its requests that were not answered with 200."""
    return [each for each in besieged.neighbour.since(begun_s) if each.status != 200]


def is_idle(besieged: Besieged) -> bool:
    """Whether all processes together leave most of a core to others for half a second."""
    cpu_s, begun_s = besieged.web.cpu_of_all_s(), time.monotonic()
    time.sleep(0.5)
    used_s = besieged.web.cpu_of_all_s() - cpu_s
    return used_s / (time.monotonic() - begun_s) < MOST_BUSY
