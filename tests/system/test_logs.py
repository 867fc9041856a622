"""Logs of the running platform: structured, complete after a crash, and without any secret."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import Running, run_platform, until
from tests.system.clients import async_http_of, http_of, is_ready, vinery
from vinery_serving.processes.logs.file import engine_name, log_path

_SETTINGS = {
    "VINERY_WEB_WORKERS": "1",
    "VINERY_LOG_LEVEL": "debug",
    "VINERY_LOG_FORMAT": "json",
    "VINERY_LOG_FILE_MB": "1",
}
_KEY = "vny_live_0000000000000000000000000000000000"
_ENDLESS = {"temperature": 1.7, "max_tokens": 1500, "ignore_eos": True, "stream": True}


# A pipe that is never read, as a terminal after Ctrl-S. It takes 4 KiB.
_UNREAD = """
import fcntl, os, sys
reader, writer = os.pipe()
fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
os.dup2(writer, 1)
from vinery_platform.cli import main
sys.exit(main(["up"]))
"""


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with run_platform(tmp_path_factory.mktemp("logs") / "home", _SETTINGS) as running:
        yield running
    assert_all_json(running)  # also the last lines of its processes


def assert_all_json(platform: Running) -> list[dict[str, Any]]:
    """Fail unless each line of standard output is a JSON object; return the objects."""
    documents = [json.loads(line) for line in platform.log.read_text("utf-8").splitlines()]
    names = {"time", "level", "process", "logger", "message"}
    assert all(names <= document.keys() for document in documents)
    return documents


@pytest.fixture
async def http(platform: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with async_http_of(platform) as client:
        yield client


class Secrets:
    """Words that occur nowhere else, one for each position."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def __call__(self, position: str) -> str:
        self.words.append(f"Qx7{len(self.words)}{position}Zw9")
        return self.words[-1]


def requests_with(secret: Secrets) -> list[tuple[str, dict[str, Any]]]:
    """Requests of the API, by their paths, with a secret in each position."""
    text = Path(__file__).with_name("requests_with_secrets.json").read_text(encoding="utf-8")
    return json.loads(re.sub(r"<(\w+)>", lambda found: secret(found[1]), text))


async def send_all(http: httpx.AsyncClient, secret: Secrets) -> None:
    for path, body in requests_with(secret):
        max_tokens = "max_output_tokens" if path == "responses" else "max_tokens"
        for more in ({}, {"stream": True}):
            await http.post(
                f"/v1/{path}", json={"model": "tiny-chat", max_tokens: 8, **body, **more}
            )
    await http.post("/v1/chat/completions", content=f'{{"messages": "{secret("json")}')
    await http.post("/v1/chat/completions", content=secret("binary").encode() + b"\xff\xfe")
    await http.get(f"/v1/models?token={secret('query')}", headers={"x-own": secret("header")})
    await http.get(f"/console/?q={secret('console')}", headers={"cookie": f"a={secret('cookie')}"})
    await http.get("/v1/models", headers={"authorization": f"Bearer {secret('bearer')}"})
    await http.get("/v1/models", headers={"authorization": f"Bearer {_KEY}"})
    await http.get("/v1/models", headers={"authorization": f"Basic {secret('basic')}"})
    form = {"login": "admin", "password": secret("password")}
    await http.post("/accounts/login/", data=form)
    await http.post(f"/api/keys/?k={secret('api')}", json={"name": secret("body")})


async def begin_endless(http: httpx.AsyncClient, content: str) -> asyncio.Task[None]:
    """Begin a stream, and return when its first token has come. It may fail later."""
    body = {"model": "tiny-chat", "messages": [{"role": "user", "content": content}], **_ENDLESS}
    first = asyncio.Event()

    async def read() -> None:
        async with http.stream("POST", "/v1/chat/completions", json=body) as response:
            async for line in response.aiter_lines():
                if '"content"' in line:
                    first.set()

    task = asyncio.create_task(read())
    async with asyncio.timeout(60):
        await first.wait()
    return task


async def crash(platform: Running, http: httpx.AsyncClient, role: str, number: int) -> None:
    """End the processes of a role by a signal in the middle of an answer."""
    stream = await begin_endless(http, f"Write a story about {number}.")
    pids = platform.pids(role)
    for pid in pids:
        os.kill(pid, number)
    stream.cancel()
    await asyncio.gather(stream, return_exceptions=True)
    await asyncio.to_thread(until, lambda: platform.has_replaced(role, pids), timeout_s=60)
    await asyncio.to_thread(until, lambda: is_ready(platform), timeout_s=60)


async def test_no_secret_reaches_a_log_and_crashes_leave_their_stacks(
    platform: Running, http: httpx.AsyncClient
) -> None:
    secret = Secrets()
    await send_all(http, secret)
    stream = await begin_endless(http, secret("killed"))
    platform.kill("engine")
    await crash(platform, http, "engine", signal.SIGSEGV)
    await crash(platform, http, "web", signal.SIGABRT)
    stream.cancel()
    await asyncio.gather(stream, return_exceptions=True)
    await send_all(http, secret)
    # The node repeats there what engines write.
    await asyncio.to_thread(until, lambda: "Segmentation fault" in platform.log.read_text())

    files = [*(platform.home / "logs").iterdir(), platform.log]
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    lines = vinery(platform, "usage", "export", "--format", "jsonl").splitlines()
    records = [{**json.loads(line), "end_user": "the client's own"} for line in lines]
    assert {"tools": 1, "messages": 4, "max_tokens": 8} in [row["parameters"] for row in records]
    texts[Path("usage records")] = json.dumps(records)
    known = (platform.api_key, platform.admin_password, _KEY.rpartition("_")[2])
    found = [
        (path.name, word)
        for path, text in texts.items()
        for word in (*secret.words, *known)
        if word in text
    ]
    assert not found
    assert "Segmentation fault" in texts[log_path(platform.home / "logs", "engine-tiny-chat")]
    assert "Aborted" in texts[log_path(platform.home / "logs", "web-1")]
    assert "loop.py" in texts[log_path(platform.home / "logs", "engine-tiny-chat")]


async def test_logs_are_private_bounded_files_and_shown_by_command(platform: Running) -> None:
    folder = platform.home / "logs"

    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    names = {path.name for path in folder.iterdir()}
    assert names >= {
        *("supervisor.log", "prepare.log", "node.log", "jobs.log"),
        *("web-1.log", "engine-tiny-chat.log"),
    }

    lines = vinery(platform, "logs", "--model", "tiny-chat", "-n", "1000").splitlines()

    assert any("engine-tiny-chat" in line and ": ready" in line for line in lines)
    assert any(" node " in line and "engine ready" in line for line in lines)

    path = log_path(platform.home / "logs", engine_name("tiny-chat"))
    with path.open("ab") as file:
        file.write(b"[ WARNING ] from a library\n" * 50_000)

    until(path.with_name(f"{path.name}.1").exists)

    until(lambda: path.exists() and path.stat().st_size < 2**20)

    path.unlink()
    until(path.exists)  # the engine has begun a new file
    os.kill(platform.pids("engine")[0], signal.SIGTERM)
    until(lambda: "stopped" in path.read_text())


def test_a_standard_output_that_is_not_read_holds_up_nothing(tmp_path: Path) -> None:
    command = (sys.executable, "-c", _UNREAD)
    with run_platform(tmp_path / "home", _SETTINGS, command) as platform:
        with http_of(platform) as client:
            body = {"model": "none", "messages": [{"role": "user", "content": "Hello"}]}
            statuses = {
                client.post("/v1/chat/completions", json=body).status_code for _ in range(60)
            }
        assert statuses == {404}
        file = platform.home / "logs" / "web-1.log"

        until(lambda: file.read_text().count('"message": "request"') == 60)
