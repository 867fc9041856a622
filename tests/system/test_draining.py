"""A server that is stopped: running requests are answered, and new ones refused."""

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import psutil

from tests.conftest import Running, runs, until
from tests.platform_.edge_server import read_to_end, status_of
from tests.system.clients import connect, head, http_of, platform_with
from tests.system.ledger import rows

# Longer than any test waits: nothing but a second signal ends a request.
SETTINGS = {"VINERY_DRAIN_S": "600", "VINERY_WEB_WORKERS": "1"}
LONG = {"max_tokens": 300, "stream": True}
STREAMS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}], **LONG},
    "/v1/completions": {"prompt": "Once upon a time", "ignore_eos": True, **LONG},
    "/v1/responses": {"input": "Hi", "stream": True},
    "/v1/messages": {"messages": [{"role": "user", "content": "Hi"}], **LONG},
}
ENDS = ("data: [DONE]", "data: [DONE]", "response.completed", "message_stop")
LAST = dict(zip(STREAMS, ENDS, strict=True))
ENDLESS = {"prompt": "Once", "ignore_eos": True, "max_tokens": 1900, "n": 4, "stream": True}


platform = platform_with(**SETTINGS)  # the last test stops it


class HalfSent:
    """A request whose client has sent half of the body. The request runs until the rest comes."""

    def __init__(self, platform: Running) -> None:
        body = json.dumps({"model": "tiny-chat", "prompt": "Once " * 400, "max_tokens": 2}).encode()
        fields = (f"content-length: {len(body)}", "connection: close", "expect: 100-continue")
        self._connection = connect(platform)
        self._rest = body[1000:]
        post = "POST /v1/completions"
        self._connection.sendall(head(platform, post, *fields, key=platform.api_key))
        assert status_of(self._connection.recv(1000)) == 100  # the request runs
        self._connection.sendall(body[:1000])

    def finish(self) -> bytes:
        """Send the rest, and return the answer."""
        self._connection.sendall(self._rest)
        return self.read()

    def read(self) -> bytes:
        with self._connection:
            return read_to_end(self._connection)


@contextmanager
def streaming(
    platform: Running, bodies: dict[str, dict[str, Any]]
) -> Iterator[dict[str, Future[str]]]:
    """Read these streams, of which each has begun."""

    def read(path: str, body: dict[str, Any], begun: Future[None]) -> str:
        text = ""
        with (
            http_of(platform) as client,
            client.stream("POST", path, json={"model": "tiny-chat", **body}) as answer,
        ):
            for part in answer.iter_text():
                text += part
                if not begun.done():
                    begun.set_result(None)
        return text

    with ThreadPoolExecutor(len(bodies)) as threads:
        begins: list[Future[None]] = [Future() for _ in bodies]
        found = {
            path: threads.submit(read, path, body, begun)
            for (path, body), begun in zip(bodies.items(), begins, strict=True)
        }
        for begun in begins:
            begun.result(60)
        yield found


def status(platform: Running, path: str) -> int:
    """The status; 0 if a process that ends has closed the connection."""
    try:
        return httpx.get(f"{platform.base_url}{path}").status_code
    except httpx.TransportError:
        return 0


def assert_refuses(platform: Running, idle: httpx.Client) -> None:
    """New requests are refused, on a connection that was idle and on new ones."""
    kept = idle.post("/v1/completions", json={"model": "tiny-chat", "prompt": "a"})
    new = [
        httpx.post(f"{platform.base_url}{path}", json={"model": "tiny-chat", **body})
        for path, body in STREAMS.items()
    ]
    page = httpx.get(f"{platform.base_url}/console/")

    for answer in (kept, *new, page):
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) > 0
        assert answer.headers["connection"] == "close"
    assert {each.json()["error"]["code"] for each in (kept, *new[:3])} == {"shutting_down"}
    assert new[3].json()["type"] == "error"
    assert "being stopped" in page.text


def outcomes(platform: Running, num_before: int, number: int) -> list[str]:
    """Of so many requests, after those before."""

    def written() -> list[str] | None:
        found = [row.outcome for row in rows(platform)]
        return found[num_before:] if len(found) >= num_before + number else None

    return until(written)


def test_sigterm_lets_what_runs_be_answered_and_refuses_the_rest(platform: Running) -> None:
    (first,), num_before = platform.pids("web"), len(rows(platform))
    with http_of(platform) as idle, streaming(platform, STREAMS) as streams:
        idle.get("/livez")
        half_sent = HalfSent(platform)

        os.kill(first, signal.SIGTERM)
        until(lambda: status(platform, "/readyz") == 503)

        assert status(platform, "/livez") == 200
        assert_refuses(platform, idle)
        answer = half_sent.finish()
        texts = {path: stream.result(60) for path, stream in streams.items()}

    assert status_of(answer) == 200
    assert b'"text_completion"' in answer
    assert {path for path, text in texts.items() if LAST[path] in text} == set(STREAMS)
    until(lambda: status(platform, "/readyz") == 200, timeout_s=60)
    assert first not in platform.pids("web")
    assert outcomes(platform, num_before, len(STREAMS) + 1) == ["ok"] * (len(STREAMS) + 1)


def test_a_second_sigterm_ends_what_runs_with_errors_and_records_it(platform: Running) -> None:
    (first,), num_before = platform.pids("web"), len(rows(platform))
    with streaming(platform, {"/v1/completions": ENDLESS}) as streams:
        half_sent = HalfSent(platform)
        os.kill(first, signal.SIGTERM)
        until(lambda: status(platform, "/readyz") == 503)

        os.kill(first, signal.SIGTERM)
        answer = half_sent.read()
        text = streams["/v1/completions"].result(60)

    assert status_of(answer) == 503
    assert b"shutting_down" in answer
    error = text.split("data: ")[-2]  # the last one is [DONE]
    assert json.loads(error)["error"]["code"] == "shutting_down"
    until(lambda: status(platform, "/readyz") == 200, timeout_s=60)
    assert "failed" in outcomes(platform, num_before, 1)
    [row] = [row for row in rows(platform)[num_before:] if row.num_output_tokens > 0]
    assert (row.outcome, row.http_status) == ("failed", 503)


def test_sigterm_to_all_keeps_engine_and_node_until_answers_are_whole(platform: Running) -> None:
    back = [*platform.processes("engine"), *platform.processes("node")]
    num_before = len(rows(platform))
    family = platform.family()
    with streaming(platform, STREAMS) as streams:
        half_sent = HalfSent(platform)
        os.kill(platform.pid, signal.SIGTERM)
        until(lambda: status(platform, "/readyz") == 503)

        assert all(map(runs, back))
        answer = half_sent.finish()
        texts = {path: stream.result(60) for path, stream in streams.items()}

    assert status_of(answer) == 200
    assert {path for path, text in texts.items() if LAST[path] in text} == set(STREAMS)
    _, left = psutil.wait_procs(family, timeout=60)
    assert not [each for each in left if runs(each)]
    assert outcomes(platform, num_before, len(STREAMS) + 1) == ["ok"] * (len(STREAMS) + 1)
