"""Killed processes, clients that leave, and many clients at once."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import pytest

from tests.conftest import Running, run_platform, runs, until
from tests.prepared_home import EXACT
from tests.system.clients import async_http_of, http_of, text_of, vinery
from tests.system.ledger import (
    execute,
    is_idle,
    is_written,
    metric,
    num_sent_tokens,
    outcomes,
    rows,
)

COUNT = " ".join(str(number) for number in range(1, 61))
# Long enough to be killed in the middle: the model repeats itself until the limit.
ENDLESS = {
    "model": "tiny-chat",
    "prompt": "Once upon a time",
    "max_tokens": 200,
    "temperature": 1.7,
    "top_p": 0.98,
}
# Long enough to run while engines are killed.
FOREVER = {**ENDLESS, "max_tokens": 1900, "ignore_eos": True, "stream": True}
FATAL = {**FOREVER, "prompt": "A request that ends engines"}
COUNTING = {
    "model": "tiny-chat",
    "messages": [{"role": "user", "content": "Count to 60."}],
    "stream": True,
}


@pytest.fixture
async def http(running: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with async_http_of(running, limits=httpx.Limits(max_connections=None)) as client:
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


async def test_answers_survive_a_killed_engine_and_a_change_of_its_options_to_the_last_token(
    running: Running, http: httpx.AsyncClient
) -> None:
    await until_async(lambda: is_idle(running))
    num_before = num_sent_tokens(running)
    streams = [asyncio.create_task(read_stream(http, COUNTING)) for _ in range(16)]
    await until_async(lambda: num_sent_tokens(running) > num_before + 200)
    running.kill("engine")

    answers = await asyncio.gather(*streams)

    assert Counter(text for text, _ in answers) == {COUNT: 16}
    assert not any(errors for _, errors in answers)

    await until_async(lambda: is_idle(running) and is_written(running))
    before, old = len(rows(running)), running.pids("engine")
    is_over = False

    async def ask_again_and_again() -> list[tuple[str, list[str]]]:
        answers = []
        while not is_over:
            answers.append(await read_stream(http, COUNTING))
        return answers

    clients = [asyncio.create_task(ask_again_and_again()) for _ in range(4)]
    await until_async(lambda: metric(running, "vllm:num_requests_running") > 0)
    set_options(running, {"max_running": 12})
    await until_async(lambda: running.has_replaced("engine", old))
    is_over = True
    answers = [each for client in clients for each in await client]
    set_options(running, {})
    await until_async(lambda: len(running.pids("engine")) == len(old))

    assert set(Counter(text for text, _ in answers)) == {COUNT}
    assert not any(errors for _, errors in answers)
    await until_async(lambda: len(rows(running)) == before + len(answers))
    # The engine with the former options finishes what it has.
    assert not any(row.num_continuations for row in rows(running)[before:])


def set_options(running: Running, options: dict[str, int]) -> None:
    text = json.dumps(EXACT | options)
    execute(running, "UPDATE serving_servedmodel SET options = ? WHERE name = 'tiny-chat'", text)


async def test_nothing_hangs_on_a_killed_engine(running: Running, http: httpx.AsyncClient) -> None:
    bodies = [ENDLESS] * 40 + [{**ENDLESS, "stream": True}] * 44  # 64 are generated at a time
    asked = [
        asyncio.create_task(http.post("/v1/completions", json=body, timeout=120)) for body in bodies
    ]
    num_before = num_sent_tokens(running)
    await until_async(lambda: metric(running, "vllm:num_requests_waiting") > 0)
    await until_async(lambda: num_sent_tokens(running) > num_before)
    old = running.kill("engine")

    answers = [await each for each in asked]

    assert {each.status_code for each in answers} == {200}
    assert not [each for each in answers if "engine_lost" in each.text]
    assert all(each.text.endswith("data: [DONE]\n\n") for each in answers[40:])
    assert running.pids("engine") != old
    answer = await http.post("/v1/completions", json={**ENDLESS, "max_tokens": 5})
    assert answer.status_code == 200


async def test_streams_do_not_notice_killed_nodes_and_adopted_engines_and_workers_are_replaced(
    running: Running, http: httpx.AsyncClient
) -> None:
    engines = running.pids("engine")
    long = {**COUNTING, "temperature": 0, "max_tokens": 1000, "ignore_eos": True}
    streams = [asyncio.create_task(read_stream(http, long)) for _ in range(4)]
    await until_async(lambda: metric(running, "vinery_requests_live") == 4)
    nodes = running.kill("node")

    answers = await asyncio.gather(*streams)

    assert len({text for text, _ in answers}) == 1
    assert not any(errors for _, errors in answers)
    await until_async(lambda: running.has_replaced("node", nodes))
    assert running.pids("engine") == engines

    workers, adopted = running.kill("jobs"), f"engine adopted model=tiny-chat pid={engines[0]}\n"
    num_adopted = running.log.read_text().count(adopted)
    running.kill("node")
    await until_async(lambda: running.log.read_text().count(adopted) > num_adopted)
    running.kill("engine")

    answer = await http.post("/v1/completions", json={**ENDLESS, "max_tokens": 5})

    assert answer.status_code == 200
    assert running.has_replaced("engine", engines)
    await until_async(lambda: running.has_replaced("jobs", workers))


async def until_async(condition: object) -> None:
    await asyncio.to_thread(until, condition, timeout_s=120)


def test_a_request_that_ends_two_engines_is_refused_listed_and_released(running: Running) -> None:
    until(lambda: is_idle(running))
    with http_of(running) as client:
        ended = answer_without_engines(running, client)
        assert "engine_lost" in ended.text

        refused = until(lambda: refusal(client))
        assert refused.json()["error"]["code"] == "request_quarantined"
        (row,) = json.loads(vinery(running, "quarantine", "list", "--json"))
        assert (row["request_id"], row["model"]) == (ended.headers["x-request-id"], "tiny-chat")
        assert row["key_id"] is not None
        assert row["digest"] in refused.json()["error"]["message"]
        assert row["digest"] in running.log.read_text()

        vinery(running, "quarantine", "release", row["digest"])
        with client.stream("POST", "/v1/completions", json=FATAL) as accepted:
            assert accepted.status_code == 200


def answer_without_engines(running: Running, client: httpx.Client) -> httpx.Response:
    """Send the request, and kill each engine that runs it."""
    with ThreadPoolExecutor(1) as sending:
        answer = sending.submit(client.post, "/v1/completions", json=FATAL)
        for _ in range(2):
            until(lambda: metric(running, "vllm:num_requests_running") > 0 or answer.done())
            killed = running.kill("engine")
            until(lambda killed=killed: running.has_replaced("engine", killed))
        return answer.result()


def refusal(client: httpx.Client) -> httpx.Response | None:
    """Send the request, and return the answer if it is an error."""
    with client.stream("POST", "/v1/completions", json=FATAL) as answer:
        if answer.status_code == 200:
            return None
        answer.read()
        return answer


@pytest.mark.stores
def test_ledger_audit_log_and_database_are_whole_after_all_kills(running: Running) -> None:
    ids = [row.request_id for row in rows(running)]

    assert len(ids) == len(set(ids))
    assert set(outcomes(running)) <= {"ok", "client_gone", "failed", "rejected", "interrupted"}

    if "DATABASE_URL" not in running.environment:
        assert execute(running, "PRAGMA integrity_check") == [("ok",)]
    vinery(running, "audit", "verify")
    vinery(running, "usage", "verify")


# -- Engines outlive all other processes of their platform, and end with the next platform


def kill_all_but_engines(platform: Running) -> list[psutil.Process]:
    """Returns the engines, with their own processes."""
    engines = platform.processes("engine")
    left = [each for engine in engines for each in (engine, *engine.children(recursive=True))]
    supervisor, *others = platform.family()
    supervisor.suspend()  # a running supervisor would start others, or end the node in order
    for process in (*(each for each in others if each not in left), supervisor):
        with suppress(psutil.NoSuchProcess):  # a fork server ends with its web process
            process.kill()
    psutil.wait_procs([supervisor], timeout=30)
    assert all(map(runs, left))
    return left


# That they end without a next start: nightly_platforms.py
def test_engines_outlive_all_other_processes_until_the_next_start(tmp_path: Path) -> None:
    with run_platform(tmp_path / "home") as platform:
        (pid,) = platform.pids("engine")
        expected = text_of(platform, max_tokens=50)
        kill_all_but_engines(platform)
    with run_platform(tmp_path / "home") as platform:
        assert platform.pids("engine") == []  # it belongs to another supervisor's tree
        assert f"engine adopted model=tiny-chat pid={pid}\n" in platform.log.read_text()
        assert text_of(platform, max_tokens=50) == expected
        engine = psutil.Process(pid)
        platform.kill("node")
        until(lambda: platform.log.read_text().count("engine adopted") == 2)
        assert engine.is_running()
    until(lambda: not runs(engine))
