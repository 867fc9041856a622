"""Web processes are replaced, by `vinery reload` or for their memory, and no request notices it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
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


async def test_reload_replaces_every_web_process_without_losing_a_request(tmp_path: Path) -> None:
    with run_platform(tmp_path / "home", {"VINERY_WEB_WORKERS": "2"}) as platform:
        first, second = platform.pids("web")
        (engine,) = platform.pids("engine")
        streaming = [asyncio.create_task(stream_until(platform, pid)) for pid in (first, second)]
        asking = [
            asyncio.create_task(ask_until(platform, pid, keep))
            for pid in (first, second)
            for keep in (True, False)
        ]
        await asyncio.sleep(0.5)  # until the streams have begun
        done = await asyncio.to_thread(reload, platform)

        async with asyncio.timeout(60):
            texts = await asyncio.gather(*streaming)
            nums = await asyncio.gather(*asking)

        assert done.returncode == 0
        assert len(platform.pids("web")) == 2
        assert platform.pids("engine") == [engine]

    assert reload(platform).returncode == 1  # it does not run any more
    streams = [text for each in texts for text in each]
    assert streams
    assert all(nums)
    assert all(text.endswith("data: [DONE]\n\n") for text in streams)
    assert not any('"error"' in text for text in streams)


@pytest.mark.parametrize("server", ["uvicorn", "daphne"])
async def test_a_large_web_process_is_replaced_without_losing_a_request(
    tmp_path: Path, server: str
) -> None:
    with run_platform(tmp_path / "home", SETTINGS | {"VINERY_SERVER": server}) as platform:
        # On a busy machine the successor is there already.
        first = min(platform.pids("web"), key=begun_at_s)
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


def begun_at_s(pid: int) -> float:
    return psutil.Process(pid).create_time()


def is_over(first: int) -> bool:
    return not psutil.pid_exists(first)


def client_of(platform: Running) -> httpx.AsyncClient:
    headers = {"authorization": f"Bearer {platform.api_key}"}
    return httpx.AsyncClient(base_url=platform.base_url, headers=headers, timeout=60)


def reload(platform: Running) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vinery.cli", "reload"],
        env=platform.environment,
        capture_output=True,
        text=True,
        check=False,
    )


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
