"""The values of a usage record, beside the tokens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest

from tests.conftest import Running, run_platform, until
from tests.engine.energy.counter_files import package, using
from tests.system.clients import bearer, complete
from tests.system.ledger import Row, execute, metric, rows

pytestmark = pytest.mark.system


def ask(running: Running, headers: Mapping[str, str | bytes]) -> httpx.Response:
    return httpx.post(
        f"{running.base_url}/v1/completions",
        headers=httpx.Headers({**bearer(running), **headers}),
        json={"model": "tiny-chat", "prompt": "one two", "max_tokens": 3},
        timeout=60,
    )


def row_of(running: Running, answer: httpx.Response) -> Row:
    request_id = answer.headers["x-request-id"]
    (row,) = until(lambda: [row for row in rows(running) if row.request_id == request_id])
    return row


def test_a_request_is_found_by_the_name_that_its_client_gave_it(running: Running) -> None:
    name = "mine-" + 507 * "x"
    answer = ask(running, {"x-client-request-id": name})
    assert answer.status_code == 200
    row = row_of(running, answer)
    sql = "SELECT request_id FROM accounts_usagerecord WHERE client_request_id = ?"
    assert [found[0] for found in execute(running, sql, name)] == [row.request_id]


@pytest.mark.parametrize("name", [513 * "x", "größer"], ids=["too long", "not ASCII"])
def test_a_name_that_openai_would_not_take_is_refused(running: Running, name: str) -> None:
    answer = ask(running, {"x-client-request-id": name.encode()})
    assert answer.status_code == 400
    assert "x-client-request-id" in answer.json()["error"]["message"]
    assert row_of(running, answer).outcome == "rejected"


def test_the_parts_of_its_time_are_at_most_the_whole(running: Running) -> None:
    row = row_of(running, ask(running, {}))
    assert row.queue_ms is not None
    assert row.prefill_ms is not None
    assert row.first_token_ms is not None
    assert row.queue_ms >= 0
    assert row.prefill_ms > 0
    assert row.queue_ms + row.prefill_ms <= row.first_token_ms


def test_the_energy_of_requests_and_of_idleness_is_what_the_machine_counted(
    tmp_path: Path,
) -> None:
    counter = package(tmp_path / "sys")
    environment = {"VINERY_SYSFS": str(tmp_path / "sys")}
    names = ("vinery_engine_energy_joules_total", "vinery_engine_request_energy_joules_total")
    with run_platform(tmp_path / "home", environment) as platform:
        with using(counter, watts=50):
            answers = [complete(platform) for _ in range(20)]
        energies = [row_of(platform, answer).energy_mj or 0 for answer in answers]
        counted_j = counter.energy_uj / 1e6
        # It is read every second.
        until(lambda: metric(platform, names[0]) == pytest.approx(counted_j, abs=0.02))
        reported_j = metric(platform, names[1])

    assert sum(energies) > 0
    assert sum(energies) / 1000 == pytest.approx(reported_j, abs=0.02)
    assert reported_j < counted_j
