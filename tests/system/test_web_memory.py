"""Web processes are replaced, by `vinery reload` or for their memory, and no request fails."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil

from tests import forked_commands
from tests.conftest import Running, run_platform, until
from tests.system.clients import async_http_of

# Any web process has more.
SETTINGS = {"VINERY_WEB_MEMORY_MB": "32", "VINERY_WEB_WORKERS": "1"}
ENDLESS = {"model": "tiny-chat", "prompt": "Once upon a time", "max_tokens": 200}
ENDLESS |= {"ignore_eos": True, "stream": True}


async def test_reload_replaces_every_web_process_without_losing_a_request(tmp_path: Path) -> None:
    settings = {"VINERY_WEB_WORKERS": "2"}
    with run_platform(tmp_path / "home", settings) as platform:
        (engine,) = platform.pids("engine")
        async with clients_until_the_end_of(platform, *platform.pids("web")):
            done = await asyncio.to_thread(reload, platform)

        assert done.returncode == 0
        assert len(platform.pids("web")) == 2
        assert platform.pids("engine") == [engine]

    assert reload(platform).returncode == 1  # it does not run any more


async def test_a_large_web_process_is_replaced_without_losing_a_request(tmp_path: Path) -> None:
    with run_platform(tmp_path / "home", SETTINGS) as platform:
        # On a busy machine the successor is there already.
        first = min(platform.processes("web"), key=psutil.Process.create_time).pid
        # A successor starts.
        await asyncio.to_thread(until, lambda: "and is replaced" in platform.log.read_text())
        async with clients_until_the_end_of(platform, first, first):
            pass


@asynccontextmanager
async def clients_until_the_end_of(
    platform: Running, first: int, second: int
) -> AsyncIterator[None]:
    """Clients that ask until these processes have ended, and get whole answers."""
    begun = asyncio.Event()
    streaming = [asyncio.create_task(stream_until(platform, pid, begun)) for pid in (first, second)]
    asking = [
        asyncio.create_task(ask_until(platform, pid, keep))
        for pid, keep in ((first, True), (second, False))
    ]
    await begun.wait()
    yield
    async with asyncio.timeout(120):
        streams = [text for each in await asyncio.gather(*streaming) for text in each]
        await asyncio.gather(*asking)
    assert streams
    assert all(text.endswith("data: [DONE]\n\n") for text in streams)
    assert not any('"error"' in text for text in streams)


def reload(platform: Running) -> subprocess.CompletedProcess[str]:
    return forked_commands.run("reload", environment=platform.environment)


async def stream_until(platform: Running, first: int, begun: asyncio.Event) -> list[str]:
    """The streams that one client after the other gets, until the first process has ended."""
    texts: list[str] = []
    while psutil.pid_exists(first) or not texts:
        async with (
            async_http_of(platform) as client,
            client.stream("POST", "/v1/completions", json=ENDLESS) as answer,
        ):
            begun.set()
            texts.append((await answer.aread()).decode())
    return texts


async def ask_until(platform: Running, first: int, keeps_connection: bool) -> None:
    """Ask again and again, on one connection or on one for each request."""
    client = async_http_of(platform)
    while psutil.pid_exists(first):
        assert (await client.get("/v1/models")).status_code == 200
        if not keeps_connection:
            await client.aclose()
            client = async_http_of(platform)
        await asyncio.sleep(0.1)
    await client.aclose()
