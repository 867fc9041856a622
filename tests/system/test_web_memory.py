"""A web process with too much memory is replaced, and no request notices it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import psutil
import pytest

from tests.conftest import Running, run_platform, until

pytestmark = pytest.mark.system

# Any web process has more.
SETTINGS = {"VINERY_WEB_MEMORY_MB": "32", "VINERY_WEB_WORKERS": "1"}
ENDLESS = {
    "model": "tiny-chat",
    "prompt": "Once upon a time",
    "max_tokens": 500,
    "ignore_eos": True,
    "stream": True,
}


@pytest.mark.parametrize("server", ["uvicorn", "daphne"])
async def test_a_large_web_process_is_replaced_without_losing_a_request(
    tmp_path: Path, server: str
) -> None:
    with run_platform(tmp_path / "home", SETTINGS | {"VINERY_SERVER": server}) as platform:
        (first,) = platform.pids("web")
        # A successor starts, which takes longer than the first answers below to begin.
        await asyncio.to_thread(until, lambda: "and is replaced" in platform.log.read_text())
        streams = [asyncio.create_task(stream_until(platform, first)) for _ in range(4)]
        short = [asyncio.create_task(ask_until(platform, first, keep)) for keep in (True, False)]

        async with asyncio.timeout(60):
            texts = await asyncio.gather(*streams)
            nums = await asyncio.gather(*short)

    assert all(nums)
    assert {text.endswith("data: [DONE]\n\n") for each in texts for text in each} == {True}
    assert not any('"error"' in text for each in texts for text in each)


def is_over(first: int) -> bool:
    return not psutil.pid_exists(first)


def client_of(platform: Running) -> httpx.AsyncClient:
    headers = {"authorization": f"Bearer {platform.api_key}"}
    return httpx.AsyncClient(base_url=platform.base_url, headers=headers, timeout=60)


async def stream_until(platform: Running, first: int) -> list[str]:
    """The streams that one client after the other gets, until the first process has ended."""
    texts = []
    while not is_over(first):
        async with client_of(platform) as client:
            texts.append((await client.post("/v1/completions", json=ENDLESS)).text)
    return texts


async def ask_until(platform: Running, first: int, keeps_connection: bool) -> int:
    """Ask again and again, on one connection or on one for each request."""
    num_answers = 0
    client = client_of(platform)
    while not is_over(first):
        response = await client.get("/v1/models")
        assert response.status_code == 200
        num_answers += 1
        if not keeps_connection:
            await client.aclose()
            client = client_of(platform)
        await asyncio.sleep(0.02)
    await client.aclose()
    return num_answers
