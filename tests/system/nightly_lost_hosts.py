"""A host that others use is lost or cut off while it runs their streams: the streams go on on
another host, with the same text, and each is counted once. Clients of the lost host itself ask
another one."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import httpx
import psutil
import psycopg

from tests.conftest import REPOSITORY, until
from tests.prepared_home import EXACT
from tests.system.hosts import WITHIN_S, Installed, become, two_hosts

NUM_STREAMS = 64
NUM_TOKENS = 200
READY = "tiny-chat (ready)"
# Otherwise a text depends on what else is in the batch. And the CPU rounds what it computes of a
# prompt and of a new token differently, so tokens that an engine reads again are others.
_PLUGIN = EXACT["plugin"] | {"DYNAMIC_QUANTIZATION_GROUP_SIZE": 0, "KV_CACHE_PRECISION": "f32"}
EXACTLY = ("--option", f"plugin={json.dumps(_PLUGIN)}")


@contextmanager
def serving_hosts(folder: Path) -> Iterator[tuple[Installed, Installed]]:
    """Moon and mars, each with a replica of the model, and moon uses both."""
    with two_hosts(folder) as (moon, mars):
        moon.run("prepare")
        moon.run("model", "change", "tiny-chat", *EXACTLY)
        moon.start()
        become(moon, moon=("active", READY))  # first, so that no replica is placed on mars
        mars.start()
        become(moon, moon=("active", READY), mars=("active", ""))
        moon.run("model", "change", "tiny-chat", "--replicas", "2")
        become(moon, moon=("active", READY), mars=("active", READY))
        until(lambda: num_ready(moon) == 2, timeout_s=WITHIN_S)
        yield moon, mars


def num_ready(host: Installed) -> float:
    """How many engines the web process of a host uses."""
    return sum(metric(host, "vinery_engine_ready").values())


def metric(host: Installed, name: str) -> dict[str, float]:
    """By labels."""
    lines = httpx.get(f"{host.environment['URL']}/metrics").text.splitlines()
    found = (each.rsplit(" ", 1) for each in lines if each.startswith(name + "{"))
    return {labels: float(value) for labels, value in found}


class Answer(NamedTuple):
    request_id: str
    text: str
    broken: tuple["Answer", ...] = ()  # what came of it from hosts that were lost


@contextmanager
def streams(*hosts: Installed, model: str = "tiny-chat") -> Iterator[list[Future[Answer]]]:
    """Greedy answers from the web process of a host, of which half have begun. Clients that are
    refused, or whose connection breaks, ask the next host."""
    key = json.loads((hosts[0].home.with_name("moon") / "bootstrap.json").read_text())["api_key"]
    begun = threading.Semaphore(0)

    def read(number: int) -> Answer:
        broken: list[Answer] = []
        for host in hosts:
            answer, is_whole = ask(host, number)
            if is_whole:
                return answer._replace(broken=tuple(broken))
            broken.append(answer)
        raise AssertionError(f"no host has answered: {broken}")

    def ask(host: Installed, number: int) -> tuple[Answer, bool]:
        body = {"model": model, "prompt": f"{number}: once upon a time", "temperature": 0}
        body |= {"max_tokens": NUM_TOKENS, "ignore_eos": True, "stream": True}
        texts: list[str] = []
        request_id, is_whole = "", False
        with (
            suppress(httpx.TransportError),
            httpx.stream(
                *("POST", f"{host.environment['URL']}/v1/completions"),
                json=body,
                headers={"Authorization": f"Bearer {key}"},
                timeout=WITHIN_S,
            ) as response,
        ):
            if response.status_code == 503:  # a web process ends with its supervisor
                return Answer("", ""), False
            request_id = response.headers["x-request-id"]
            for line in response.iter_lines():
                if line.startswith("data: {"):
                    texts += [each["text"] for each in json.loads(line[6:])["choices"]]
                    if len(texts) == 1:
                        begun.release()
            is_whole = True
        return Answer(request_id, "".join(texts)), is_whole

    with ThreadPoolExecutor(NUM_STREAMS) as threads:
        found = [threads.submit(read, number) for number in range(NUM_STREAMS)]
        for _ in range(NUM_STREAMS // 2):
            assert begun.acquire(timeout=WITHIN_S)
        yield found


def read(host: Installed, model: str = "tiny-chat") -> list[str]:
    with streams(host, model=model) as found:
        return [each.result().text for each in found]


def check_goes_on(
    host: Installed, lose: Callable[[], object], model: str = "tiny-chat", *, moves: bool = True
) -> list[str]:
    """`moves`: some go on elsewhere. Returns the texts."""
    wanted = read(host, model)
    with streams(host, model=model) as found:
        lose()
        answers = [each.result() for each in found]
    assert not wrong(answers, wanted)
    rows = counted_once(host, answers)
    assert any(num_continuations for *_, num_continuations in rows) == moves
    return wanted


def check_another_is_asked(lost: Installed, other: Installed, wanted: Sequence[str]) -> None:
    with streams(lost, other) as found:
        lost.kill()
        answers = [each.result() for each in found]
    assert not wrong(answers, wanted)
    broken = [part for each in answers for part in each.broken if part.request_id]
    assert broken, "the host was asked by all, and lost some"
    assert all(
        whole.startswith(part.text)
        for whole, each in zip(wanted, answers, strict=True)
        for part in each.broken
    )
    lost.start()
    counted_once(other, answers)
    until(lambda: len(rows_of(other, broken)) >= len(broken), timeout_s=WITHIN_S)
    rows = rows_of(other, broken)
    assert sorted(row[0] for row in rows) == sorted(each.request_id for each in broken)
    # The host may have ended an answer of which the last bytes did not arrive.
    assert "interrupted" in {row[1] for row in rows} <= {"interrupted", "ok"}


def wrong(answers: Sequence[Answer], wanted: Sequence[str]) -> dict[str, str]:
    """The wanted and the other texts where they differ."""
    pairs = zip(wanted, (each.text for each in answers), strict=True)
    return {text: other for text, other in pairs if text != other}


def counted_once(host: Installed, answers: Sequence[Answer]) -> list[tuple[str, str, int, int]]:
    until(lambda: len(rows_of(host, answers)) >= NUM_STREAMS, timeout_s=WITHIN_S)
    rows = rows_of(host, answers)
    assert sorted(row[:3] for row in rows) == sorted(
        (each.request_id, "ok", NUM_TOKENS) for each in answers
    ), "each is counted once"
    return rows


def rows_of(host: Installed, answers: Sequence[Answer]) -> list[tuple[str, str, int, int]]:
    query = (
        "SELECT request_id, outcome, num_output_tokens, num_continuations "
        "FROM accounts_usagerecord WHERE request_id = ANY(%s)"
    )
    with psycopg.connect(host.environment["DATABASE_URL"]) as connection:
        return connection.execute(query, [[each.request_id for each in answers]]).fetchall()


def test_an_engine_is_killed_and_then_its_host_with_clients_of_its_own(tmp_path: Path) -> None:
    with serving_hosts(tmp_path) as (moon, mars):
        wanted = check_goes_on(moon, lambda: [each.kill() for each in mars.engines()])
        become(moon, moon=("active", READY), mars=("active", READY))
        check_uses_both(moon)
        until(lambda: num_ready(mars) == 2, timeout_s=WITHIN_S)
        check_another_is_asked(mars, moon, wanted)


def test_the_network_of_a_host_is_cut(tmp_path: Path) -> None:
    with serving_hosts(tmp_path) as (moon, mars):
        check_goes_on(moon, mars.relay().kill)
        check_uses_both(moon)

        cut = [mars.processes()[0], mars.relay()]  # a supervisor replaces a relay that is stopped
        try:
            check_goes_on(moon, lambda: stop(cut))
            until(lambda: num_ready(moon) == 1, timeout_s=WITHIN_S)
            become(moon, moon=("active", READY), mars=("active", READY))
        finally:
            go_on(cut)
        check_uses_both(moon)


def check_uses_both(host: Installed) -> None:
    until(lambda: num_ready(host) == 2, timeout_s=WITHIN_S)
    before = metric(host, "vllm:generation_tokens_total")
    read(host)
    after = metric(host, "vllm:generation_tokens_total")
    assert all(after[each] - before[each] > NUM_TOKENS for each in after), (before, after)


def test_a_host_comes_back_after_its_lease_has_ended(tmp_path: Path) -> None:
    with serving_hosts(tmp_path) as (moon, mars):
        moon.run("model", "add", str(REPOSITORY / "models" / "tiny-chat"), "--name", "b", *EXACTLY)
        become(moon, moon=("active", READY), mars=("active", f"b (ready), {READY}"))
        until(lambda: num_ready(mars) == 3, timeout_s=WITHIN_S)
        elsewhere = f"b (ready), {READY}, {READY}"

        def lose() -> None:
            processes = mars.processes()
            stop(processes)
            try:
                become(moon, moon=("active", elsewhere), mars=("gone", ""))
            finally:
                go_on(processes)

        check_goes_on(mars, lose, "b", moves=False)
        become(moon, moon=("active", f"b (ready), {READY}"), mars=("active", READY))
        until(lambda: len(mars.engines()) == 1, timeout_s=WITHIN_S)


def stop(processes: Sequence[psutil.Process]) -> None:
    for each in processes:
        each.suspend()


def go_on(processes: Sequence[psutil.Process]) -> None:
    """Children first: a process that is stopped alone is replaced."""
    for each in reversed(processes):
        each.resume()
