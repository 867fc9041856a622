"""Limits of a running platform: setting limits, asking until one binds, counting usage."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import httpx
import openai
import pytest

from tests.conftest import Running, until
from tests.system.clients import MODEL, bearer, chat, http_of, openai_of, vinery
from tests.system.ledger import Row, execute, is_written, rows, wait_until_seen

MAX_TRIES = 30
# Of three to four hundred tokens: where four hundred are an hour's, a second one has to wait for
# most of an hour.
LONG: dict[str, Any] = {"messages": [{"role": "user", "content": "one " * 130}], "max_tokens": 100}
ENDLESS: Any = {
    "model": MODEL,
    "prompt": "Count:",
    "max_tokens": 1900,
    "stream": True,
    "extra_body": {"ignore_eos": True},
}


def limit(
    platform: Running,
    metric: str,
    window: str,
    amount: int,
    *options: str,
    scope: Sequence[str] = ("--platform",),
) -> None:
    """Set a limit as an administrator does."""
    what = ("--metric", metric, "--window", window, "--amount", str(amount))
    vinery(platform, "limit", "set", *scope, *what, *options)


def remove_limits(platform: Running, *, window: str = "%") -> None:
    """`window`: a pattern of SQL's LIKE."""
    execute(platform, 'DELETE FROM accounts_limit WHERE "window" LIKE ?', window)
    wait_until_seen(platform)


@pytest.fixture(autouse=True)
def no_limits(platform: Running) -> Iterator[None]:
    """Removes the limits of each test."""
    yield
    remove_limits(platform)


def ask(platform: Running, max_tokens: int = 5, **changes: Any) -> httpx.Response:
    fields = {"max_tokens": max_tokens, "ignore_eos": True, **changes}
    return chat(platform, "Count to 100.", **fields)


async def ask_at_once(platform: Running, num: int, *, are_short: bool = False) -> list[int]:
    """The statuses of so many requests in parallel, each on a connection of its own. All answers
    are long; with `are_short` they are short, though allowed to be long. Requests that are refused
    for a time come back afterwards, as real clients do."""

    async def one(http: httpx.AsyncClient, number: int) -> int:
        long = {"prompt": f"Number {number}", "max_tokens": 150, "ignore_eos": True}
        short = {"messages": [{"role": "user", "content": "Count to 10."}]}
        for _ in range(MAX_TRIES):
            response = await http.post(
                f"{platform.base_url}/v1/{'chat/' if are_short else ''}completions",
                headers=bearer(platform),
                json={"model": MODEL, **(short if are_short else long)},
            )
            if "retry-after" not in response.headers:
                break
            await asyncio.sleep(int(response.headers["retry-after"]))
        return response.status_code

    # Idle connections would be counted again and again, which takes seconds for so many.
    limits = httpx.Limits(max_connections=num, max_keepalive_connections=0)
    async with httpx.AsyncClient(limits=limits, timeout=250) as http:
        return await asyncio.gather(*(one(http, number) for number in range(num)))


def check_many_at_once(platform: Running, num: int, quota: int, *, are_short: bool = False) -> None:
    """Fail unless so many requests, which want more than this quota, use all of it and no more."""
    before = settled_rows(platform, 0)
    limit(platform, "tokens", "day", num_tokens(platform) + quota)

    statuses = asyncio.run(ask_at_once(platform, num, are_short=are_short))

    settled_rows(platform, before + num)
    assert set(statuses) <= {200, 429}
    used = num_tokens(platform, before)
    assert 0.95 * quota < used <= quota, used


def num_tokens(platform: Running, since: int = 0) -> int:
    """Return the tokens in the ledger, of the records after the first `since`."""
    return sum(row.num_prompt_tokens + row.num_output_tokens for row in rows(platform)[since:])


@contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    """Processes that stand still: what an engine has begun does not end meanwhile."""
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):  # it was killed meanwhile
                os.kill(pid, signal.SIGCONT)


def settled_rows(platform: Running, num: int) -> int:
    """Waits until there are so many rows, and all that was settled before is among them."""
    until(lambda: is_written(platform))
    until(lambda: len(rows(platform)) >= num)
    return len(rows(platform))


def client(platform: Running, **changes: Any) -> openai.OpenAI:
    return openai_of(platform, **{"_strict_response_validation": True, **changes})


@dataclass(frozen=True)
class Heard:
    """One answer to a client, which may repeat a user's call."""

    asked_at_s: float
    heard_at_s: float
    status: int
    headers: httpx.Headers

    @property
    def request_id(self) -> str:
        return str(self.headers["x-request-id"])


def listening(heard: list[Heard]) -> httpx.Client:
    """An HTTP client that notes every single answer in `heard`."""
    asked_at_s = 0.0

    def ask(_: httpx.Request) -> None:
        nonlocal asked_at_s
        asked_at_s = time.monotonic()

    def hear(response: httpx.Response) -> None:
        heard.append(Heard(asked_at_s, time.monotonic(), response.status_code, response.headers))

    return openai.DefaultHttpxClient(event_hooks={"request": [ask], "response": [hear]})


def num_output_tokens(platform: Running) -> int:
    """Return the tokens of all answers so far, from the ledger."""
    settled_rows(platform, 0)
    return sum(row.num_output_tokens for row in rows(platform))


def refused_rows(platform: Running, since: int) -> list[Row]:
    """The refused requests after the first `since` rows."""
    return [row for row in rows(platform)[since:] if row.http_status == 429]


def waits(platform: Running, request_id: str) -> list[Any]:
    """The waits of the limits that refused the request, once they are written."""
    query = "SELECT wait_s FROM accounts_refusedrequest WHERE NOT is_shadow AND request_id = ?"
    return until(lambda: execute(platform, query, request_id))


def key_id(platform: Running) -> str:
    ((found,),) = execute(platform, "SELECT id FROM accounts_apikey")
    return str(found)


def used_of_key(platform: Running, metric: str) -> int:
    with http_of(platform) as http:
        result = http.get("/v1/usage/me").json()
    (used,) = [each["used"] for each in result["limits"] if each["metric"] == metric]
    return int(used)


async def leave_streams(platform: Running, num: int, *, num_connections: int) -> None:
    """Begin so many long answers, and leave each after its first chunk."""
    free = asyncio.Semaphore(num_connections)
    http = openai.AsyncOpenAI(
        base_url=f"{platform.base_url}/v1", api_key=platform.api_key, max_retries=0, timeout=120
    )

    async def leave() -> None:
        async with free:
            stream = await http.completions.create(**ENDLESS)
            async with stream:
                await anext(aiter(stream))

    async with http:
        await asyncio.gather(*(leave() for _ in range(num)))
