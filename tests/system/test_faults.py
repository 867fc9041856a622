"""Killed processes, clients that leave, and many clients at once."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.conftest import Running, until
from tests.system.commands import vinery
from tests.system.ledger import execute, is_idle, is_settled, is_written, metric, outcomes, rows
from tests.system.load import leave_early

pytestmark = pytest.mark.system

COUNT = " ".join(str(number) for number in range(1, 61))
# Long enough to be killed in the middle: the model repeats itself until the limit.
ENDLESS = {
    "model": "tiny-chat",
    "prompt": "Once upon a time",
    "max_tokens": 200,
    "temperature": 1.7,
    "top_p": 0.98,
}
COUNTING = {
    "model": "tiny-chat",
    "messages": [{"role": "user", "content": "Count to 60."}],
    "stream": True,
}


@pytest.fixture(scope="module")
def platform(running: Running) -> Running:
    """The platform that others use, too: whatever happens to it here, it comes back."""
    return running


@pytest.fixture
async def http(platform: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(
        base_url=platform.base_url,
        headers={"authorization": f"Bearer {platform.api_key}"},
        timeout=120,
        limits=httpx.Limits(max_connections=None),
    ) as client:
        yield client


async def read_stream(client: httpx.AsyncClient, body: dict[str, object]) -> tuple[str, list[str]]:
    """The text of a streamed chat, and the messages of errors inside it."""
    text, errors = "", []
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        assert response.status_code == 200
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                payload = json.loads(line.removeprefix("data: "))
                if "error" in payload:
                    errors.append(payload["error"]["code"])
                else:
                    text += payload["choices"][0]["delta"].get("content") or ""
    return text, errors


async def test_64_parallel_streams_finish_with_equal_text_beside_bad_grammars(
    http: httpx.AsyncClient,
) -> None:
    function = {"name": "f", "parameters": {"type": "object", "$ref": "#/none"}}
    bad = {
        "model": "tiny-chat",
        "messages": [{"role": "user", "content": "Hello!"}],
        "tool_choice": "required",
        "tools": [{"type": "function", "function": function}],
    }
    good = [asyncio.create_task(read_stream(http, COUNTING)) for _ in range(64)]
    refused = [await http.post("/v1/chat/completions", json=bad) for _ in range(5)]

    assert {each.status_code for each in refused} == {400}
    assert {each.json()["error"]["code"] for each in refused} == {"invalid_grammar"}
    assert [await each for each in good] == [(COUNT, [])] * 64


async def test_answers_survive_a_killed_engine_to_the_last_token(
    platform: Running, http: httpx.AsyncClient
) -> None:
    await until_async(lambda: is_idle(platform))
    num_before = metric(platform, "vinery_engine_output_tokens_total")
    streams = [asyncio.create_task(read_stream(http, COUNTING)) for _ in range(16)]
    await until_async(
        lambda: metric(platform, "vinery_engine_output_tokens_total") > num_before + 200
    )
    platform.kill("engine")

    answers = await asyncio.gather(*streams)

    assert Counter(text for text, _ in answers) == {COUNT: 16}
    assert not any(errors for _, errors in answers)


async def test_answers_survive_a_change_of_the_engines_options(
    platform: Running, http: httpx.AsyncClient
) -> None:
    await until_async(lambda: is_idle(platform) and is_written(platform))
    before, old = len(rows(platform)), platform.pids("engine")
    is_over = False

    async def ask_again_and_again() -> list[tuple[str, list[str]]]:
        answers = []
        while not is_over:
            answers.append(await read_stream(http, COUNTING))
        return answers

    clients = [asyncio.create_task(ask_again_and_again()) for _ in range(4)]
    await until_async(lambda: metric(platform, "vinery_engine_running") > 0)
    set_options(platform, {"max_running": 12})
    await until_async(lambda: platform.has_replaced("engine", old))
    is_over = True
    answers = [each for client in clients for each in await client]
    set_options(platform, {})
    await until_async(lambda: len(platform.pids("engine")) == len(old))

    assert set(Counter(text for text, _ in answers)) == {COUNT}
    assert not any(errors for _, errors in answers)
    await until_async(lambda: len(rows(platform)) == before + len(answers))
    # The engine with the former options finishes what it has.
    assert not any(row.num_continuations for row in rows(platform)[before:])


def set_options(platform: Running, options: dict[str, int]) -> None:
    text = json.dumps(options)
    execute(platform, "UPDATE serving_servedmodel SET options = ? WHERE name = 'tiny-chat'", text)


async def test_a_killed_engine_is_back_and_nothing_hangs(
    platform: Running, http: httpx.AsyncClient
) -> None:
    bodies = [ENDLESS] * 40 + [{**ENDLESS, "stream": True}] * 44  # 64 are generated at a time
    asked = [asyncio.create_task(ask_until_admitted(http, body)) for body in bodies]
    num_before = metric(platform, "vinery_engine_output_tokens_total")
    await until_async(lambda: metric(platform, "vinery_engine_waiting") > 0)
    await until_async(lambda: metric(platform, "vinery_engine_output_tokens_total") > num_before)
    old = platform.kill("engine")

    answers = [await each for each in asked]

    assert {each.status_code for each in answers} == {200}
    assert not [each for each in answers if "engine_lost" in each.text]
    assert all(each.text.endswith("data: [DONE]\n\n") for each in answers[40:])
    assert platform.pids("engine") != old
    answer = await http.post("/v1/completions", json={**ENDLESS, "max_tokens": 5})
    assert answer.status_code == 200


async def ask_until_admitted(client: httpx.AsyncClient, body: dict[str, object]) -> httpx.Response:
    """Ask for a completion, again at the named time while the engine is overloaded: it refuses some
    of many requests at once if this key has just used most of it."""
    while True:
        response = await client.post("/v1/completions", json=body, timeout=120)
        if response.status_code != 503 or response.json()["error"]["code"] != "overloaded":
            return response
        await asyncio.sleep(int(response.headers["retry-after"]))


@pytest.mark.stores
async def test_a_killed_web_process_is_back_and_its_requests_are_in_the_ledger(
    platform: Running, http: httpx.AsyncClient
) -> None:
    await until_async(lambda: is_idle(platform) and is_written(platform))
    before = len(rows(platform))
    # None may end by itself while all web processes are asked how many there are.
    endless = {**ENDLESS, "max_tokens": 1900, "ignore_eos": True, "stream": True}
    streams = [asyncio.create_task(http.post("/v1/completions", json=endless)) for _ in range(6)]
    await until_async(lambda: metric(platform, "vinery_requests_live") == 6)
    platform.kill("web")
    await asyncio.gather(*streams, return_exceptions=True)

    answer = await http.post("/v1/completions", json={**ENDLESS, "max_tokens": 5})

    assert answer.status_code == 200
    await until_async(lambda: len(rows(platform)) == before + 7)
    assert Counter(row.outcome for row in rows(platform)[before:])["interrupted"] == 6
    await until_async(lambda: is_idle(platform))


async def test_streams_do_not_notice_that_their_node_was_killed(
    platform: Running, http: httpx.AsyncClient
) -> None:
    engines = platform.pids("engine")
    long = {**COUNTING, "temperature": 0, "max_tokens": 1000, "ignore_eos": True}
    streams = [asyncio.create_task(read_stream(http, long)) for _ in range(4)]
    await until_async(lambda: metric(platform, "vinery_requests_live") == 4)
    nodes = platform.kill("node")

    answers = await asyncio.gather(*streams)

    assert len({text for text, _ in answers}) == 1
    assert not any(errors for _, errors in answers)
    await until_async(lambda: platform.has_replaced("node", nodes))
    assert platform.pids("engine") == engines


async def test_the_next_node_replaces_an_adopted_engine_that_was_killed(
    platform: Running, http: httpx.AsyncClient
) -> None:
    engines = platform.pids("engine")
    platform.kill("node")
    await until_async(lambda: num_adopted(platform, engines[0]) > 0)
    platform.kill("engine")

    answer = await http.post("/v1/completions", json={**ENDLESS, "max_tokens": 5})

    assert answer.status_code == 200
    assert platform.has_replaced("engine", engines)


def num_adopted(platform: Running, pid: int) -> int:
    """How often a node has adopted this engine."""
    return platform.log.read_text().count(f"engine adopted model=tiny-chat pid={pid}\n")


async def test_a_killed_worker_is_back(platform: Running) -> None:
    old = platform.kill("jobs")

    await until_async(lambda: platform.has_replaced("jobs", old))


@pytest.mark.stores
async def test_clients_that_leave_at_random_leave_nothing_behind(
    platform: Running, http: httpx.AsyncClient
) -> None:
    await until_async(lambda: is_idle(platform) and is_written(platform))
    before = len(rows(platform))

    await leave_early(platform, COUNTING, 200)

    await until_async(lambda: is_idle(platform))
    # A client that leaves while its request is still being read was never let in.
    await until_async(lambda: is_settled(platform, before))
    ended = Counter(row.outcome for row in rows(platform)[before:])
    assert set(ended) <= {"ok", "client_gone"}
    assert 180 <= sum(ended.values()) <= 200
    answer, _ = await read_stream(http, COUNTING)
    assert answer == COUNT


async def until_async(condition: object) -> None:
    await asyncio.to_thread(until, condition, timeout_s=120)


@pytest.mark.stores
def test_the_ledger_has_every_outcome_exactly_once(platform: Running) -> None:
    ids = [row.request_id for row in rows(platform)]

    assert len(ids) == len(set(ids))
    assert set(outcomes(platform)) <= {"ok", "client_gone", "failed", "rejected", "interrupted"}


@pytest.mark.stores
def test_database_audit_log_and_usage_are_whole_after_all_kills(platform: Running) -> None:
    if "DATABASE_URL" not in platform.environment:
        assert execute(platform, "PRAGMA integrity_check") == [("ok",)]
    vinery(platform, "audit", "verify")
    vinery(platform, "usage", "verify")
