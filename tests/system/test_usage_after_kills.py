"""The ledger after clients that leave and killed web processes and engines.

The counters of a killed engine are lost, so two facts are checked instead of one:

- The tokens that clients have read are in the ledger. The number is exact for answers that
  ended, and a lower bound for abandoned answers and for answers of a dead web process.
- The tokens that the running engine counts since its start are in the ledger. A request that
  continues on this engine has tokens of both engines.
"""

import asyncio
import contextlib
import json
import os
import random
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from math import inf

import httpx
import pytest

from tests.conftest import Running, runs, until
from tests.system.clients import async_http_of, complete
from tests.system.ledger import Row, is_idle, is_written, metric, num_sent_tokens, rows

pytestmark = pytest.mark.stores

# The same each time, so that a failure is not chance; others are tried with VINERY_TEST_SEED.
SEED = int(os.environ.get("VINERY_TEST_SEED", "1"))
NUM_CLIENTS = 16
KILLS = ((), ("web",), ("engine", "web"))


@dataclass
class Asked:
    """A request as its client saw it."""

    request_id: str = ""  # none: no answer has begun
    num_read: int = 0  # tokens
    has_received_its_end: bool = False


@dataclass
class Phase:
    """The requests of a phase, and the times of its kill."""

    asked: list[Asked] = field(default_factory=list)
    # Just before the kill of the engine, and after its death.
    killed_at: float = 0.0
    dead_at: float = 0.0


@pytest.mark.parametrize("kills", KILLS, ids=lambda kills: " and ".join(kills) or "none")
def test_the_ledger_has_all_tokens_after_kills(running: Running, kills: tuple[str, ...]) -> None:
    check_phase(running, random.Random(SEED), kills)


def check_phase(platform: Running, draw: random.Random, kills: tuple[str, ...]) -> None:
    num_before = settled_engine_tokens(platform)
    known = {row.request_id for row in rows(platform)}
    if "engine" in kills:
        num_before = 0  # the next one begins with none

    phase = asyncio.run(mistreat(platform, draw, kills))

    until(lambda: is_at_rest(platform), timeout_s=60)
    new = {row.request_id: row for row in rows(platform) if row.request_id not in known}
    check_clients(phase, new)
    assert "engine_lost" not in {row.error_code for row in new.values()}
    assert kills or all(row.is_exact for row in new.values())
    assert {row.model for row in new.values() if row.num_output_tokens} == {"tiny-chat"}
    least, most = of_this_engine(phase, new.values())
    # An engine hears a little later what a gateway had no use for.
    with contextlib.suppress(AssertionError):
        until(lambda: least <= engine_tokens(platform) - num_before <= most, timeout_s=30)
    num_made = engine_tokens(platform) - num_before
    assert least <= num_made <= most, (phase.killed_at, new)


def check_clients(phase: Phase, now: dict[str, Row]) -> None:
    for asked in phase.asked:
        if not asked.request_id:
            continue
        in_ledger = now[asked.request_id].num_output_tokens
        if asked.has_received_its_end:
            assert in_ledger == asked.num_read, (asked, now[asked.request_id])
        elif now[asked.request_id].is_exact:
            assert in_ledger >= asked.num_read, (asked, now[asked.request_id])


def of_this_engine(phase: Phase, new: Collection[Row]) -> tuple[float, float]:
    """How many tokens of these rows the engine that lives now has made: at least, and at most. Of a
    row that is not exact, it may have made any number after the last checkpoint."""
    result = [(generated_by_it(row, phase), row) for row in new]
    least = sum(row.num_output_tokens for is_its, row in result if is_its)
    possible = [row for is_its, row in result if is_its is not False]
    return least, sum(row.num_output_tokens if row.is_exact else inf for row in possible)


def generated_by_it(row: Row, phase: Phase) -> bool | None:
    """Whether the engine that lives now made what the row counts. None: perhaps, or a part of it,
    of a request that was there when the former one was killed."""
    if row.arrived_at_s() > phase.dead_at:
        return True
    if row.total_ms is None:  # its web process was killed
        return None
    has_ended = row.arrived_at_s() + row.total_ms / 1000 < phase.killed_at
    return False if has_ended else None


# -- A phase ------------------------------------------------------------------------------------


async def mistreat(platform: Running, draw: random.Random, kills: tuple[str, ...]) -> Phase:
    phase = Phase()
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with async_http_of(platform, limits=limits, timeout=60) as http:
        clients = [
            asyncio.create_task(ask_again_and_again(http, phase, random.Random(draw.random())))
            for _ in range(NUM_CLIENTS)
        ]
        for role in kills:
            await asyncio.sleep(draw.uniform(0.3, 1.5))
            await asyncio.to_thread(kill, platform, role, phase)
        await asyncio.gather(*clients)
    return phase


def kill(platform: Running, role: str, phase: Phase) -> None:
    processes, killed_at = platform.processes(role), time.time()
    for process in processes:
        process.kill()
    until(lambda: not any(map(runs, processes)))
    if role == "engine":
        phase.killed_at, phase.dead_at = killed_at, time.time()


async def ask_again_and_again(http: httpx.AsyncClient, phase: Phase, draw: random.Random) -> None:
    for _ in range(3):
        asked = Asked()
        phase.asked.append(asked)
        try:
            async with asyncio.timeout(draw.choice([None, None, draw.random()])):
                await ask(http, asked, draw)
        except (TimeoutError, httpx.HTTPError):
            asked.has_received_its_end = False
        await asyncio.sleep(draw.uniform(0, 0.3))


async def ask(http: httpx.AsyncClient, asked: Asked, draw: random.Random) -> None:
    body = {
        "model": draw.choice(["tiny-chat", "default"]),
        "prompt": f"Count from {draw.randint(1, 99)}:",
        "max_tokens": draw.choice([1, 40, 200, 400]),
        "stream": draw.random() < 0.7,
        "n": draw.choice([1, 1, 2]),
        "ignore_eos": draw.random() < 0.7,
        "return_token_ids": True,
    }
    if not body["stream"]:  # of a stream we count what comes, also before a stop
        body["stop"] = draw.choice([None, ["7"], [" 1", "9"]])
    async with http.stream("POST", "/v1/completions", json=body) as response:
        asked.request_id = response.headers["x-request-id"]
        if response.status_code != 200:
            return
        if not body["stream"]:
            usage = json.loads(await response.aread())["usage"]
            asked.num_read, asked.has_received_its_end = usage["completion_tokens"], True
            return
        async for line in response.aiter_lines():
            read_line(line, asked)


def read_line(line: str, asked: Asked) -> None:
    if line == "data: [DONE]":
        asked.has_received_its_end = True
    elif line.startswith("data: {"):
        choices = json.loads(line.removeprefix("data: ")).get("choices", [])
        asked.num_read += sum(len(choice.get("token_ids") or []) for choice in choices)


# -- Values of the platform ---------------------------------------------------------------------


def engine_tokens(platform: Running) -> int:
    return round(num_sent_tokens(platform))


def settled_engine_tokens(platform: Running) -> int:
    """The engine's tokens once the engine has made a step for a later request, and so knows the
    tokens that earlier clients did not use."""
    until(lambda: is_at_rest(platform), timeout_s=60)
    num_steps = metric(platform, "vinery_engine_steps_total")
    assert complete(platform, max_tokens=1).status_code == 200
    until(lambda: metric(platform, "vinery_engine_steps_total") > num_steps)
    until(lambda: is_at_rest(platform), timeout_s=60)
    return engine_tokens(platform)


def is_at_rest(platform: Running) -> bool:
    """Everything is back, nothing runs, and nothing is left to be written."""
    try:
        is_ready = metric(platform, "vinery_engine_ready") >= 1
        return is_ready and is_idle(platform) and is_written(platform)
    except httpx.HTTPError:
        return False
