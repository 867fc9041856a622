"""Requests through the routes to a scripted engine are answered, and recorded once."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.conftest import until_in_loop
from tests.fakes.engine import FakeEngine, Gateway
from tests.gateway.running.tiny_chat import ids_of, new_engine
from tests.tables import table
from vinery_accounts.keys.table import KeyTable, Storage
from vinery_accounts.limits.rulebook import Snapshot
from vinery_accounts.limits.rules import PLATFORM, Metric, Rule, Window
from vinery_accounts.limits.service import LimitService
from vinery_accounts.usage.entries import Admission, Outcome, Settlement
from vinery_serving.core.errors import Overloaded
from vinery_serving.core.pooling import PoolingDraft
from vinery_serving.gateway.endpoints import answers
from vinery_serving.gateway.endpoints.answers import api_application
from vinery_serving.gateway.endpoints.bodies import FREE_BYTES, api_bodies
from vinery_serving.gateway.engines.meter import Meter
from vinery_serving.gateway.reading.reading import SMALL_BODY_BYTES
from vinery_serving.gateway.running import generate
from vinery_serving.gateway.state.drain import Drain, LiveRequests
from vinery_serving.gateway.state.runtime import Runtime
from vinery_serving.gateway.state.traffic import Traffic
from vinery_serving.gateway.workers.pool import Worker, WorkerPool, WorkLimits
from vinery_serving.transport.messages import Load, Submit

Response = tuple[int, bytes]
LIMITS = WorkLimits(
    num_processes=2, cpu_s=2, wall_s=60, memory_bytes=512 * 2**20, max_waiting=9, wait_s=60
)
CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "Hello!"}]
KEEP_ALIVES = (b": keep-alive", b"event: ping")
TWO_MEGABYTES = json.dumps({"messages": [{"role": "user", "content": "x" * 2_000_000}]}).encode()
# Enough spaces to make a body large.
PADDING = " " * SMALL_BODY_BYTES

small_and_large = pytest.mark.parametrize("padding", ["", PADDING], ids=["small", "large"])
whole_and_streamed = pytest.mark.parametrize("is_streamed", [False, True])


async def _no_route(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError(scope["path"])


class _Runtime(SimpleNamespace):
    __hash__ = object.__hash__  # by identity, as of a runtime


class Server:
    """The API of a process with one model, without a database."""

    def __init__(self, folder: Path, rest: Any = _no_route) -> None:
        self.engine = new_engine(folder)
        self.has_begun = asyncio.Event()  # whether anything of an answer was sent
        self.has_kept_alive = asyncio.Event()  # whether a keep-alive was
        self.admitted: list[Admission] = []  # the records
        self.settled: list[Settlement] = []
        self.headers: dict[bytes, bytes] = {}  # of the last answer
        self.limits = LimitService()
        self.traffic = Traffic()
        self.drain = Drain()
        self.workers = WorkerPool("vinery_serving.gateway.reading.worker_jobs", LIMITS)
        self.workers.allow([self.engine.entry.folder])
        found = {"entries": {"tiny-chat"}, "aliases": {}, "engines": [self.engine]}
        self.runtime = _Runtime(
            required_keys=None,
            keys=SimpleNamespace(anonymous_storage=Storage()),  # nothing is stored
            directory=SimpleNamespace(
                find=lambda *_: self.engine, named=lambda name, *_: name, **found
            ),
            ledger=SimpleNamespace(admit=self.admitted.append, settle=self.settled.append),
            live=LiveRequests(),
            drain=self.drain,
            traffic=self.traffic,
            limits=self.limits,
            workers=self.workers,
        )
        self._api = api_application(cast(Runtime, self.runtime), rest)

    async def post(self, path: str, body: bytes, method: str = "POST") -> Response:
        messages: list[dict[str, Any]] = []
        received = [{"type": "http.request", "body": body}]

        async def receive() -> dict[str, Any]:
            if not received:
                await asyncio.Event().wait()
            return received.pop()

        async def send(message: Any) -> None:
            messages.append(message)
            self.has_begun.set()
            if message.get("body", b"").startswith(KEEP_ALIVES):
                self.has_kept_alive.set()

        scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b""}
        await self._api(scope, receive, send)
        sent = b"".join(message.get("body", b"") for message in messages[1:])
        self.headers = {name.lower(): value for name, value in messages[0]["headers"]}
        return messages[0]["status"], sent

    async def ask(self, path: str, padding: str = "", /, **fields: Any) -> Response:
        return await self.post(path, (json.dumps(fields) + padding).encode())


def allow_one_request(server: Server) -> None:
    rule = Rule(1, PLATFORM, Metric.REQUESTS, Window.MINUTE, 1)
    server.limits.book.follow(Snapshot({PLATFORM: (rule,)}))


async def answer(gateway: Gateway) -> None:
    while True:
        submit = await gateway.receive_submit()
        gateway.accept(submit)
        gateway.tokens(submit, ids_of("Hi there"))
        gateway.tokens(submit, [2], "stop")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    server = Server(tmp_path)
    server.engine.replicas.open()
    async with FakeEngine(server.engine.replicas.path, answer):
        yield server
    await server.engine.replicas.close()
    await server.workers.stop()


@pytest.mark.parametrize("has_low_tier", [True, False])
async def test_an_engine_with_a_low_tier_learns_of_other_requests_before_they_are_prepared(
    tmp_path: Path, has_low_tier: bool
) -> None:
    server = Server(tmp_path)
    received: list[str] = []

    async def note(gateway: Gateway) -> None:
        gateway.send(Load(0, has_low_tier=has_low_tier))
        while True:
            message = await gateway.receive()
            received.append(type(message).__name__)
            if isinstance(message, Submit):
                gateway.accept(message)
                gateway.tokens(message, [2], "stop")

    async with FakeEngine(server.engine.replicas.path, note):
        server.engine.replicas.open()
        await until_in_loop(lambda: server.engine.replicas.clients[0].load is not None)
        for tier in ("flex", "default"):
            assert (await server.ask(CHAT, messages=HELLO, service_tier=tier))[0] == 200
        await server.engine.replicas.close()

    assert received == ["Submit", *["Arriving"] * has_low_tier, "Submit"]


@small_and_large
@whole_and_streamed
@pytest.mark.parametrize(
    ("path", "endpoint", "end"),
    [
        (CHAT, "chat/completions", b"data: [DONE]\n\n"),
        ("/v1/messages", "messages", b'data: {"type":"message_stop"}\n\n'),
    ],
)
async def test_an_answer_is_sent_and_recorded_under_its_endpoint(
    server: Server, is_streamed: bool, padding: str, path: str, endpoint: str, end: bytes
) -> None:
    fields = {"max_tokens": 20, "messages": HELLO, "stream": is_streamed}

    status, sent = await server.ask(path, padding, **fields)

    [settlement] = server.settled
    assert status == 200
    assert sent.endswith(end) if is_streamed else b"Hi there" in sent
    assert (settlement.outcome, settlement.admission.endpoint) == (Outcome.OK, endpoint)
    assert settlement.admission.model == "tiny-chat"
    assert settlement.num_output_tokens == len(ids_of("Hi there")) + 1
    assert settlement.num_response_bytes == len(sent)
    assert bool(server.workers.num_starts) == bool(padding), "a small body needs no worker"
    if endpoint == "messages":
        assert server.headers[b"request-id"] == server.headers[b"x-request-id"]
        first = sent.partition(b"data: ")[2].partition(b"\n")[0]
        message = json.loads(first)["message"] if is_streamed else json.loads(sent)
        assert message["type"] == "message"
        assert message["usage"]["input_tokens"] == settlement.num_prompt_tokens > 0


@pytest.mark.parametrize("path", ["/v1/messages", "/v3//messages/count_tokens"])
async def test_a_limit_refuses_a_message_in_anthropics_form(server: Server, path: str) -> None:
    allow_one_request(server)

    first, _ = await server.ask(path, max_tokens=9, messages=HELLO)
    second, sent = await server.ask(path, max_tokens=9, messages=HELLO)

    assert (first, second) == (200, 429)
    error = json.loads(sent)
    assert (error["type"], error["error"]["type"]) == ("error", "rate_limit_error")
    assert error["request_id"].encode() == server.headers[b"request-id"]
    assert int(server.headers[b"retry-after"]) > 0


async def test_an_answer_names_the_schema_that_was_too_much(server: Server) -> None:
    schema = {"$ref": "https://example.com/own.json"}
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}

    fields = {"messages": HELLO, "response_format": form}
    for is_streamed in (True, False):
        assert (await server.ask(CHAT, **fields, stream=is_streamed))[0] == 200
        assert server.headers[b"x-vinery-ignored"] == b"response_format.json_schema.schema"

    form["json_schema"]["strict"] = True
    assert (await server.ask(CHAT, **fields))[0] == 400
    assert b"x-vinery-ignored" not in server.headers


UNKNOWN = {"prompt": "Hi", "chat_id": "a"}


@table(
    "path, fields, status, ignored",
    [
        *((path, UNKNOWN, 200, b"chat_id") for path in ("/tokenize", "/v1/tokenize")),
        ("/v1/responses/input_tokens", {"input": "Hi", "chat_id": "a"}, 200, b"chat_id"),
        # The path replaces the model of the body.
        ("/openai/deployments/tiny-chat/completions", {"model": "b", "prompt": "a"}, 200, b"model"),
        # The error comes after the body was read.
        ("/v1/completions", UNKNOWN | {"prompt": "word " * 5000}, 400, b"chat_id"),
    ],
)
async def test_other_answers_and_errors_name_them_too(
    server: Server, path: str, fields: dict[str, Any], status: int, ignored: bytes
) -> None:
    assert (await server.ask(path, **fields))[0] == status
    assert server.headers[b"x-vinery-ignored"] == ignored


@small_and_large
async def test_an_invalid_body_is_refused_and_recorded(server: Server, padding: str) -> None:
    status, sent = await server.post("/v1/completions", b"{" + padding.encode())

    [settlement] = server.settled
    assert (status, settlement.http_status, settlement.outcome) == (400, 400, Outcome.REJECTED)
    assert json.loads(sent)["error"]["code"] == settlement.error_code == "invalid_json"
    assert len(server.admitted) == 1


@small_and_large
async def test_the_fields_of_a_request_are_recorded_and_those_without_effect_named(
    server: Server, padding: str
) -> None:
    unused = {"store": True, "cache_control": {}, "chat_id": "a", "a b": 1}
    await server.ask(CHAT, padding, messages=HELLO, stop="secret", user="ann", **unused)
    assert server.headers[b"x-vinery-ignored"] == b"store, cache_control, chat_id, +1 more"
    assert server.traffic.ignored == {"store": 1, "cache_control": 1, "other": 1}

    num_before = len(server.admitted)
    await server.ask(CHAT, padding, model="tiny-chat", messages=HELLO, temperature=5)
    taken, refused = server.settled
    assert taken.admission.parameters == '{"messages":1,"stop":1,"store":true,"user":"…"}'
    assert refused.error_message == "`temperature` must be at most 2."
    assert (refused.error_param, refused.admission.model) == ("temperature", "tiny-chat")
    assert refused.admission.parameters is None
    assert len(server.admitted) == num_before + 1


async def running_in_a_worker(server: Server) -> None:
    while not server.workers.turns.num_running:  # noqa: ASYNC110
        await asyncio.sleep(0)  # to miss no moment of a running worker


async def test_a_client_that_leaves_while_its_body_is_read_is_recorded(server: Server) -> None:
    posting = asyncio.create_task(server.post(CHAT, TWO_MEGABYTES))
    await running_in_a_worker(server)

    posting.cancel()
    await asyncio.gather(posting, return_exceptions=True)

    [settlement] = server.settled
    assert settlement.outcome is Outcome.CLIENT_GONE
    assert len(server.admitted) == 1
    assert server.workers.turns.num_running == 0


async def test_a_body_is_not_read_without_a_key() -> None:
    runtime = _Runtime(required_keys=KeyTable({1: b"pepper"}))
    api = api_application(cast(Runtime, runtime), _no_route)
    sent: list[Any] = []

    async def receive() -> Any:
        raise AssertionError("the body was read")

    async def send(message: Any) -> None:
        sent.append(message)

    counting = ("/tokenize", "/v1/responses/input_tokens", "/v1/messages/count_tokens")
    for path in (CHAT, "/v3/responses", "/v1/messages", *counting):
        scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b""}
        await api(scope, receive, send)

    assert [message["status"] for message in sent if "status" in message] == [401] * 6


TOKENS = {
    "/tokenize": {"prompt": "Hi"},
    "/v1/detokenize": {"tokens": [5, 6]},
    "/v3/responses/input_tokens": {"input": "Hi"},
}


@small_and_large
@pytest.mark.parametrize("path", TOKENS)
async def test_rate_limits_on_requests_apply_to_a_model_s_tokenizer(
    server: Server, path: str, padding: str
) -> None:
    allow_one_request(server)

    first, _ = await server.ask(path, padding, **TOKENS[path])
    remaining = server.headers[b"x-ratelimit-remaining-requests"]
    second, error = await server.ask(path, padding, **TOKENS[path])

    assert (first, remaining, second) == (200, b"0", 429)
    assert json.loads(error)["error"]["code"] == "rate_limit_exceeded"
    assert server.settled == []


async def test_a_body_counts_until_it_is_read_and_is_forgotten_then(server: Server) -> None:
    body = json.dumps({"messages": HELLO}).encode() + b" " * 100_000
    at_rest = sys.getrefcount(body)
    counted: list[int] = []
    references: list[int] = []
    client, call = server.engine.replicas.choose(), Worker.call
    submit = client.submit

    def submitting(*arguments: Any, **options: Any) -> Any:
        counted.append(api_bodies().num_bytes)
        references.append(sys.getrefcount(body))
        return submit(*arguments, **options)

    async def calling(*arguments: Any, **body: Any) -> Any:
        counted.append(api_bodies().num_bytes)
        return await call(*arguments, **body)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "submit", submitting)
        patch.setattr(Worker, "call", calling)
        status, _ = await server.post(CHAT, body)

    assert status == 200
    # Two calls of a worker, and the submission to the engine.
    assert counted == [len(body) - FREE_BYTES, len(body) - FREE_BYTES, 0]
    # Of this test alone: its variable, and the argument of `post`.
    assert references[0] <= at_rest + 1


# A model that wakes

STREAMS: dict[str, dict[str, Any]] = {
    CHAT: {"messages": HELLO},
    "/v1/completions": {"prompt": "Hello!"},
    "/v1/responses": {"input": "Hello!"},
    "/v1/messages": {"messages": HELLO, "max_tokens": 9},
}
STREAMED: dict[str, Any] = {"model": "tiny-chat", "stream": True}


@pytest.fixture
async def asleep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    """The model has no engine. Silences and waits are short."""
    monkeypatch.setattr(generate, "SILENCE_S", 0.01)
    server = Server(tmp_path)
    server.engine._wait_s = 0.1
    server.engine.replicas.open()
    yield server
    await server.engine.replicas.close()
    await server.workers.stop()


@pytest.mark.parametrize("path", STREAMS)
async def test_a_stream_gets_keep_alives_until_its_model_is_awake(
    asleep: Server, path: str
) -> None:
    asleep.engine._wait_s = 60
    answering = asyncio.create_task(asleep.ask(path, **STREAMS[path], **STREAMED))
    await asleep.has_begun.wait()
    async with FakeEngine(asleep.engine.replicas.path, answer):
        status, sent = await answering

    [settlement] = asleep.settled
    assert status == 200
    first, _, rest = sent.partition(b"\n")
    assert first in KEEP_ALIVES
    assert b"Hi" in rest
    assert settlement.outcome is Outcome.OK


async def test_a_model_that_does_not_wake_ends_a_stream_and_is_503_otherwise(
    asleep: Server,
) -> None:
    status, sent = await asleep.ask(CHAT, **STREAMS[CHAT])
    assert status == 503
    assert int(asleep.headers[b"retry-after"]) >= 1
    assert b"The model tiny-chat is not ready yet." in sent

    for path, fields in STREAMS.items():
        status, sent = await asleep.ask(path, **fields, **STREAMED)
        assert status == 200
        assert b"The model tiny-chat is not ready yet." in sent
    assert {(each.outcome, each.http_status) for each in asleep.settled} == {(Outcome.FAILED, 503)}


# A queue


async def test_a_stream_that_waits_for_its_turn_has_its_status_and_gets_keep_alives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "SILENCE_S", 0.01)
    server = Server(tmp_path)

    async def answer_late(gateway: Gateway) -> None:
        while True:
            submit = await gateway.receive_submit()
            gateway.accept(submit)  # and the request waits
            await server.has_kept_alive.wait()
            gateway.tokens(submit, [*ids_of("Hi there"), 2], "stop")

    server.engine.replicas.open()
    async with FakeEngine(server.engine.replicas.path, answer_late):
        await server.engine.ready()
        for path, fields in STREAMS.items():
            server.has_kept_alive.clear()
            status, sent = await server.ask(path, **fields, **STREAMED)
            before, _, after = sent.partition(b"Hi")
            assert status == 200, path
            assert any(each in before for each in KEEP_ALIVES), (path, sent)
            assert after, (path, sent)
        await server.engine.replicas.close()
    await server.workers.stop()
    assert {each.outcome for each in server.settled} == {Outcome.OK}


# -- Vectors


async def embedded(cover: Callable[[int], None], reads: asyncio.Semaphore, log: list[Any]) -> None:
    """Answer a request for 100 vectors, whose client reads a part when the test says so."""

    async def pool(*_: object) -> tuple[bytes, ...]:
        return (bytes(32),) * 100

    async def reserve(*_: object) -> None:
        pass

    async def send(message: dict[str, Any]) -> None:
        log.append(message)
        await reads.acquire()

    def body(*_: Any) -> Iterator[bytes]:
        for number in range(100):
            log.append("written")
            yield b"%d " % number

    record = SimpleNamespace(
        meter=Meter(),
        reservation=SimpleNamespace(reserve=reserve, headers=[]),
        add_answer=lambda data: None,
        succeed=lambda: log.append("succeed"),
    )
    claim = SimpleNamespace(cover=cover)
    request = SimpleNamespace(id="r", origin=None, send=send, claim=claim)
    engine = SimpleNamespace(entry=SimpleNamespace(name="m"))
    read = (SimpleNamespace(body=body), PoolingDraft((bytes(4),) * 100, (0,) * 100, 100))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answers, "pool", pool)
        await answers.embed(*cast(Any, (request, record, engine, read)))


async def test_vectors_are_claimed_and_written_as_the_client_reads() -> None:
    reads, log, claimed = asyncio.Semaphore(0), list[Any](), list[int]()
    task = asyncio.create_task(embedded(claimed.append, reads, log))
    await until_in_loop(lambda: any(isinstance(each, dict) for each in log))
    assert claimed == [100 * (32 + 4)]
    assert log.count("written") < 50, "the client has read nothing yet"

    for _ in range(20):
        reads.release()
    await task

    sent = [each for each in log if isinstance(each, dict)][1:]
    assert b"".join(each["body"] for each in sent) == b"".join(b"%d " % at for at in range(100))
    assert [each["more_body"] for each in sent] == [True] * (len(sent) - 1) + [False]
    assert log[-2:] == ["succeed", sent[-1]]

    def refuse(_: int) -> None:
        raise Overloaded("No room.")

    log.clear()
    with pytest.raises(Overloaded):
        await embedded(refuse, reads, log)
    assert log == []
