"""Requests through the routes to a scripted engine: each is answered, and recorded once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from accounts.limits.service import LimitService, LimitSettings
from accounts.usage.entries import Admission, Outcome, Settlement
from serving.http.consumers import api_application
from serving.runtime.live import LiveRequests
from serving.runtime.runtime import Runtime
from serving.runtime.traffic import Traffic
from tests.fakes.engine import FakeEngine, Gateway
from tests.flow.tiny_chat import ids_of, new_engine

Response = tuple[int, bytes]


class Ledger:
    """Keeps the records in memory."""

    def __init__(self) -> None:
        self.admitted: list[Admission] = []
        self.settled: list[Settlement] = []

    def admit(self, admission: Admission) -> None:
        self.admitted.append(admission)

    def settle(self, settlement: Settlement) -> None:
        self.settled.append(settlement)


async def _no_route(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError(scope["path"])


class Server:
    """The API of a process with one model, without a database."""

    def __init__(self, folder: Path) -> None:
        self.engine = new_engine(folder)
        self.ledger = Ledger()
        runtime = SimpleNamespace(
            required_keys=None,
            directory=SimpleNamespace(find=lambda name: self.engine, entries={"tiny-chat"}),
            ledger=self.ledger,
            live=LiveRequests(),
            traffic=Traffic(),
            limits=LimitService(LimitSettings()),
        )
        self._api = api_application(cast(Runtime, runtime), _no_route)

    async def post(self, path: str, body: bytes) -> Response:
        messages: list[dict[str, Any]] = []
        received = [{"type": "http.request", "body": body}]

        async def receive() -> dict[str, Any]:
            if not received:
                await asyncio.Event().wait()
            return received.pop()

        async def send(message: Any) -> None:
            messages.append(message)

        scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b""}
        await self._api(scope, receive, send)
        sent = b"".join(message.get("body", b"") for message in messages[1:])
        return messages[0]["status"], sent


async def answer(gateway: Gateway) -> None:
    while True:
        submit = await gateway.receive_submit()
        gateway.accept(submit)
        gateway.tokens(submit, ids_of("Hi there"))
        gateway.tokens(submit, [2], "stop")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    server = Server(tmp_path)
    server.engine.client.open()
    async with FakeEngine(server.engine.client.path, answer):
        yield server
    await server.engine.client.close()


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_an_answer_is_sent_and_recorded(server: Server, is_streamed: bool) -> None:
    body = {"messages": [{"role": "user", "content": "Hello!"}], "stream": is_streamed}

    status, sent = await server.post("/v1/chat/completions", json.dumps(body).encode())

    [settlement] = server.ledger.settled
    assert status == 200
    assert sent.endswith(b"data: [DONE]\n\n") if is_streamed else b"Hi there" in sent
    assert settlement.outcome is Outcome.OK
    assert settlement.admission.model == "tiny-chat"
    assert settlement.num_output_tokens == len(ids_of("Hi there")) + 1
    assert settlement.num_response_bytes == len(sent)


async def test_an_invalid_body_is_refused_and_recorded(server: Server) -> None:
    status, sent = await server.post("/v1/completions", b"{")

    [settlement] = server.ledger.settled
    assert (status, settlement.http_status, settlement.outcome) == (400, 400, Outcome.REJECTED)
    assert json.loads(sent)["error"]["code"] == settlement.error_code == "invalid_json"
    assert len(server.ledger.admitted) == 1


async def test_tokens_are_counted_without_a_record(server: Server) -> None:
    status, sent = await server.post("/tokenize", b'{"prompt": "Hi there"}')

    assert status == 200
    assert json.loads(sent)["tokens"] == ids_of("Hi there")
    assert not server.ledger.admitted
