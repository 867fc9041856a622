"""The other ways to run it: Daphne, no keys."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import httpx

from tests.conftest import Running, run_platform, runs, until
from tests.system.clients import async_http_of, bearer, new_key, platform_with
from tests.system.ledger import is_idle, outcomes
from tests.system.limiting import client

COUNT = " ".join(str(number) for number in range(1, 41))
ASKED: Any = {"model": "tiny-chat", "messages": [{"role": "user", "content": "Count to 40."}]}

# Two web processes behind a proxy, on Daphne. The last test kills this platform.
daphne = platform_with(
    VINERY_PUBLIC_URL="http://vinery.example", VINERY_SERVER="daphne", VINERY_WEB_WORKERS="2"
)


async def leave_in_the_middle(running: Running) -> None:
    body = {"model": "tiny-chat", "prompt": "Once", "max_tokens": 1900, "n": 8, "ignore_eos": True}
    async with (
        async_http_of(running) as http,
        http.stream("POST", "/v1/completions", json=body | {"stream": True}) as response,
    ):
        async for _ in response.aiter_lines():
            return


def test_daphne_serves_the_same(daphne: Running) -> None:
    by_openai = client(daphne)
    unary = by_openai.chat.completions.create(**ASKED)
    chunks = list(by_openai.chat.completions.create(**ASKED, stream=True))
    response = by_openai.responses.create(model="tiny-chat", input="Count to 40.")
    refused = httpx.get(f"{daphne.base_url}/v1/models")

    assert unary.choices[0].message.content == COUNT
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == COUNT
    assert response.output_text == COUNT
    assert refused.status_code == 401
    assert refused.headers["x-request-id"]
    assert len(daphne.pids("web")) == 2
    asyncio.run(leave_in_the_middle(daphne))
    until(lambda: is_idle(daphne))
    until(lambda: outcomes(daphne) == {"ok": 3, "client_gone": 1})
    asks = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
    key = {"sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ=="}
    websocket = httpx.get(f"{daphne.base_url}/v1/responses", headers=bearer(daphne) | asks | key)
    assert websocket.status_code == 426


def test_without_keys_every_local_client_may_call(tmp_path: Path) -> None:
    with run_platform(tmp_path / "home", {"VINERY_AUTH": "off"}) as running:
        answer = client(running, key="EMPTY").chat.completions.create(**ASKED)
        url, body = f"{running.base_url}/v3/responses", {"model": "tiny-chat", "input": "Hello!"}
        bare = httpx.post(url, content=json.dumps(body), timeout=60)

        assert answer.choices[0].message.content == COUNT
        assert bare.status_code == 200
        assert "openai-organization" not in bare.headers
        until(lambda: outcomes(running) == {"ok": 2})


# On uvicorn: tests/guides/test_guides.py
def test_no_client_forges_its_address_and_killed_supervisors_leave_nothing(daphne: Running) -> None:
    secret = new_key(daphne, "inside", "--network", "10.0.0.0/8")

    def status(forwarded: str) -> int:
        """Of a request that the proxy on this machine passes on."""
        headers = {"authorization": f"Bearer {secret}", "x-forwarded-for": forwarded}
        return httpx.get(f"{daphne.base_url}/v1/models", headers=headers).status_code

    assert [status(each) for each in ("10.1.1.1", "10.1.1.1, 203.0.113.9")] == [200, 403]

    family = daphne.family()

    os.kill(daphne.pid, signal.SIGKILL)

    until(lambda: not any(map(runs, family)))
