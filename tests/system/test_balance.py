"""Ledger and engine agree to the token, also after abandoned requests and kills."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import httpx
import pytest

from tests.conftest import Running, run_platform, until
from tests.system.ledger import metric, rows

pytestmark = pytest.mark.system

MODEL = "tiny-chat"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with run_platform(tmp_path_factory.mktemp("balance") / "home") as running:
        yield running


def in_the_ledger(platform: Running) -> int:
    return sum(row.num_output_tokens for row in rows(platform))


def in_the_engine(platform: Running) -> int:
    return round(metric(platform, "vinery_engine_output_tokens_total"))


def agree(platform: Running, num_rows: int) -> bool:
    if len(rows(platform)) < num_rows or metric(platform, "vinery_engine_running"):
        return False
    return in_the_ledger(platform) == in_the_engine(platform) > 0


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


def test_clients_that_leave_pay_for_what_they_read(platform: Running) -> None:
    asyncio.run(leave_at_random(platform, 100, seed=1))
    until(lambda: agree(platform, 1), timeout_s=60)


def test_requests_of_a_killed_web_process_are_in_the_ledger(platform: Running) -> None:
    before = len(rows(platform))

    async def in_the_middle() -> None:
        asking = asyncio.create_task(leave_at_random(platform, 40, seed=2))
        await asyncio.sleep(1.0)
        platform.kill("web")
        await asking

    asyncio.run(in_the_middle())
    until(lambda: agree(platform, before + 1), timeout_s=120)
