"""Hostile requests of each kind, and hostile clients, sent to a platform.

`VINERY_TEST_SEED` chooses the requests. All of the corpus is sent each night.
"""

import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from tests.conftest import until
from tests.hostile.clients import CLIENTS
from tests.hostile.conftest import MOST_CPU_S, Besieged, cases, contents
from tests.hostile.corpus.fields import fields
from tests.system.ledger import locked, rows
from tests.system.limiting import ask

LEAST_CASES: Final = 400
NUM_OF_EACH_KIND: Final = 12


# -- The corpus itself --------------------------------------------------------------------


def test_the_corpus_is_large_and_has_every_field_of_the_document() -> None:
    names = [case.name for case in cases()]
    sent = {name.partition(": ")[0].partition(" ")[2] for name in names}

    assert {field.name for field in fields(contents())} <= sent
    assert len(names) == len(set(names))
    assert len(names) >= LEAST_CASES


# -- Sent to a platform -------------------------------------------------------------------


@pytest.mark.system
def test_hostile_requests_of_each_kind_are_bounded(besieged: Besieged) -> None:
    draw = random.Random(os.environ.get("VINERY_TEST_SEED", "1"))
    for kind in sorted({case.kind for case in cases()}):
        of_kind = [case for case in cases() if case.kind == kind]
        besieged.attack(draw.sample(of_kind, NUM_OF_EACH_KIND))


def _group_of(name: str) -> str:
    if "without an end" in name or name.startswith(("pipelined", "one request")):
        return "of one connection"
    leaves = "that leave" in name or name.startswith(("unfinished", "streams"))
    return "that leave" if leaves else "the others"


@pytest.mark.system
@pytest.mark.parametrize("group", sorted(set(map(_group_of, CLIENTS))))
def test_hostile_clients_at_once_are_bounded(besieged: Besieged, group: str) -> None:
    members = [act for name, act in CLIENTS.items() if _group_of(name) == group]
    begun_s, cpu_s = time.monotonic(), besieged.web.cpu_s()

    with ThreadPoolExecutor(len(members)) as threads:
        for done in [threads.submit(act, besieged.target) for act in members]:
            done.result()
    besieged.wait_until_idle()

    assert besieged.web.cpu_s() - cpu_s < 10 * MOST_CPU_S
    assert besieged.failures_of_neighbour(begun_s) == []


@pytest.mark.system
def test_requests_beside_a_locked_database_are_answered_and_recorded(besieged: Besieged) -> None:
    running = besieged.running
    with locked(running, "accounts_usagerecord"):
        answers = [ask(running, max_tokens=1) for _ in range(20)]

    assert {answer.status_code for answer in answers} == {200}
    ids = {answer.headers["x-request-id"] for answer in answers}
    until(lambda: ids <= {row.request_id for row in rows(running)})
    assert sum(row.request_id in ids for row in rows(running)) == len(ids)


@pytest.mark.system
def test_nothing_is_left_of_it(besieged: Besieged) -> None:
    besieged.check_that_nothing_is_left()
