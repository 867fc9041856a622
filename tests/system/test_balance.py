"""Ledger and engine agree to the token, also after abandoned requests and kills."""

from __future__ import annotations

import asyncio
import random
from itertools import starmap
from operator import sub
from typing import NamedTuple

import httpx
import pytest

from tests.conftest import Running, until
from tests.system.ledger import is_idle, is_written, metric, rows

pytestmark = pytest.mark.system

MODEL = "tiny-chat"


class Counts(NamedTuple):
    """What ledger and engine have counted."""

    num_rows: int
    in_the_ledger: int
    in_the_engine: int


def counts(platform: Running) -> Counts:
    found = rows(platform)
    in_the_ledger = sum(row.num_output_tokens for row in found)
    in_the_engine = round(metric(platform, "vinery_engine_output_tokens_total"))
    return Counts(len(found), in_the_ledger, in_the_engine)


@pytest.fixture
def before(running: Running) -> Counts:
    """What they have counted for other tests: the engine's is that since its last start."""
    until(lambda: is_written(running) and is_idle(running))
    return counts(running)


def agree(platform: Running, before: Counts) -> bool:
    if metric(platform, "vinery_engine_running"):
        return False
    num_rows, in_the_ledger, in_the_engine = starmap(
        sub, zip(counts(platform), before, strict=True)
    )
    return num_rows > 0 and in_the_ledger == in_the_engine > 0


async def leave_at_random(platform: Running, num_clients: int, seed: int) -> None:
    """Clients that ask for all sorts of answers, and that often do not wait for the end."""
    draw = random.Random(seed)
    async with httpx.AsyncClient(
        base_url=platform.base_url,
        headers={"authorization": f"Bearer {platform.api_key}"},
        limits=httpx.Limits(max_connections=num_clients),
        timeout=120,
    ) as http:
        await asyncio.gather(*(ask(http, draw.random(), draw) for _ in range(num_clients)))


async def ask(http: httpx.AsyncClient, patience: float, draw: random.Random) -> None:
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": f"Count to {draw.randint(5, 90)}."}],
        "max_tokens": draw.choice([1, 40, 300]),
        "stream": draw.random() < 0.7,
        "n": draw.choice([1, 1, 2]),
        "ignore_eos": draw.random() < 0.5,
        "stop": draw.choice([None, ["7"], [" 1", "9"]]),
    }
    try:
        async with asyncio.timeout(None if patience > 0.6 else patience):
            async with http.stream("POST", "/v1/chat/completions", json=body) as response:
                async for _ in response.aiter_bytes():
                    pass
    except (TimeoutError, httpx.HTTPError):
        pass


def test_clients_that_leave_pay_for_what_they_read(running: Running, before: Counts) -> None:
    asyncio.run(leave_at_random(running, 100, seed=1))
    until(lambda: agree(running, before), timeout_s=60)


def test_requests_of_a_killed_web_process_are_in_the_ledger(
    running: Running, before: Counts
) -> None:
    async def in_the_middle() -> None:
        asking = asyncio.create_task(leave_at_random(running, 40, seed=2))
        await asyncio.sleep(1.0)
        running.kill("web")
        await asking

    asyncio.run(in_the_middle())
    until(lambda: agree(running, before), timeout_s=120)
