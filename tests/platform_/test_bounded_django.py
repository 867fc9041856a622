"""Limits between clients and Django: on bodies, and turns of requests."""

import asyncio
from typing import Any

import pytest
from django.urls import resolve
from msgspec import structs

from tests.tables import table
from vinery_accounts.base.errors import KeyRefused, Refusal
from vinery_accounts.keys.table import ANONYMOUS, Caller
from vinery_platform.web.bounded import BoundedDjango
from vinery_serving.core.errors import Overloaded

MB = 2**20


class Client:
    """One request: the client sends these chunks, then nothing; without chunks an empty body."""

    def __init__(self, path: str, *chunks: bytes, method: str = "POST", **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = [(name.encode(), value.encode()) for name, value in named.items()]
        self.scope: dict[str, Any] = {"type": "http", "method": method, "path": path}
        self.scope |= {"headers": sent, "client": ("192.0.2.1", 1)}
        self.is_whole = not chunks
        self._chunks = list(chunks) or [b""]
        self.has_left = asyncio.Event()
        self.num_read_bytes = 0
        self.sent: list[dict[str, Any]] = []

    async def receive(self) -> dict[str, Any]:
        if not self._chunks:
            await self.has_left.wait()
            return {"type": "http.disconnect"}
        chunk = self._chunks.pop(0)
        self.num_read_bytes += len(chunk)
        return {"type": "http.request", "body": chunk, "more_body": not self.is_whole}

    async def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)

    @property
    def status(self) -> int:
        status: int = self.sent[0]["status"]
        return status

    def header(self, name: bytes) -> bytes | None:
        headers: list[tuple[bytes, bytes]] = self.sent[0]["headers"]
        return dict(headers).get(name)


class Django:
    """Counts requests, and answers when a test permits it."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.scopes: list[Any] = []
        self.num_running = 0
        self.may_answer = asyncio.Event()
        self.may_end = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.bodies.append((await receive())["body"])
        self.num_running += 1
        self.scopes.append(scope)
        await self.may_answer.wait()
        self.num_running -= 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})
        await self.may_end.wait()


async def run(application: Any, *clients: Client) -> list[asyncio.Task[None]]:
    tasks = [
        asyncio.create_task(application(client.scope, client.receive, client.send))
        for client in clients
    ]
    for _ in range(5):
        await asyncio.sleep(0)
    return tasks


USERS: dict[bytes | None, tuple[int, int | None]]
USERS = {b"Bearer anna": (1, 1), b"Bearer anna-2": (1, 1), b"Bearer ben": (2, 1)}
USERS |= {b"Bearer eve": (3, 2), b"Bearer root": (4, None)}


def authenticate(authorization: bytes | None) -> Caller:
    if authorization not in USERS:
        raise KeyRefused(Refusal.UNKNOWN)
    user, organization = USERS[authorization]
    return structs.replace(ANONYMOUS, user_id=user, organization_id=organization)


def bounded(django: Any, num_threads: int) -> BoundedDjango:
    return BoundedDjango(django, num_threads=num_threads, authenticate=authenticate)


def asking(path: str, address: int = 1, **headers: str) -> Client:
    client = Client(path, **headers)
    client.scope["client"] = (f"192.0.2.{address}", 1)
    return client


@pytest.fixture
async def django() -> Django:
    return Django()


@table("path", ["/accounts/login/", "/admin/", "/console/keys/", "/", "/api/keys/"])
async def test_a_large_form_is_refused_before_it_is_read(django: Django, path: str) -> None:
    client = Client(path, b"x", content_length="15000000000", cookie="a=b")

    await run(bounded(django, num_threads=1).pages, client)

    assert (client.status, client.num_read_bytes, django.bodies) == (413, 0, [])


async def test_a_form_without_a_length_is_refused_at_the_limit(django: Django) -> None:
    client = Client("/accounts/login/", *[bytes(MB // 4)] * 100)
    keyless = Client("/api/keys/", bytes(1000))
    django.may_answer.set()

    await run(bounded(django, num_threads=1).pages, client, keyless)

    assert client.status == 413
    assert client.num_read_bytes <= 1.25 * MB
    # The management API reads no body without credentials.
    assert (keyless.num_read_bytes, django.bodies) == (0, [b""])


@table("num_bytes, num_clients, num_refused", [(MB - 1, 20, 12), (64 * 1024, 200, 54)])
async def test_open_forms_have_a_budget(
    django: Django, num_bytes: int, num_clients: int, num_refused: int
) -> None:
    clients = [Client("/accounts/login/", bytes(num_bytes)) for _ in range(num_clients)]

    await run(bounded(django, num_threads=1).pages, *clients)

    refused = [client for client in clients if client.sent]
    assert len(refused) == num_refused
    assert {client.status for client in refused} == {429}
    assert all(client.header(b"retry-after") for client in refused)


async def test_only_so_many_pages_run_and_wait(django: Django) -> None:
    clients = [Client("/accounts/login/") for _ in range(400)]

    tasks = await run(bounded(django, num_threads=4).pages, *clients)
    assert django.num_running == 4
    refused = [client for client in clients if client.sent]
    assert len(refused) == 400 - 4 - 128
    assert {client.status for client in refused} == {503}
    assert all(client.header(b"retry-after") for client in refused)

    django.may_answer.set()
    django.may_end.set()
    await asyncio.gather(*tasks)
    assert sum(client.status == 200 for client in clients) == 4 + 128


async def test_a_client_that_leaves_has_no_turn(django: Django) -> None:
    application = bounded(django, num_threads=1).pages
    clients = [Client("/accounts/login/", method="GET", content_length="0") for _ in range(4)]
    tasks = await run(application, *clients)
    for client in clients[1:3]:
        client.has_left.set()

    await run(application)
    django.may_answer.set()
    django.may_end.set()
    await asyncio.wait(tasks[:3])
    await tasks[3]

    assert len(django.bodies) == 2
    assert [bool(client.sent) for client in clients] == [True, False, False, True]


async def test_other_requests_wait_for_no_pages_nor_any_for_slow_readers(django: Django) -> None:
    application = bounded(django, num_threads=1)
    pages = [Client("/accounts/login/") for _ in range(50)]
    await run(application.pages, *pages)

    others = [Client("/static/a.css"), Client("/api/keys/")]
    await run(application.pages, *others)
    await run(application.models, Client("/v1/models"))
    assert django.num_running == 4

    django.may_answer.set()  # but not `may_end`: the answers are read slowly
    for _ in range(500):
        await asyncio.sleep(0)
    assert {client.status for client in (*pages, *others)} == {200}


async def test_the_openai_api_gets_the_error_itself(django: Django) -> None:
    application = bounded(django, num_threads=1)
    clients = [Client("/v1/models") for _ in range(200)]

    tasks = await run(application.models, *clients)

    refused = [task for task in tasks if task.done()]
    assert len(refused) == 200 - 2 - 128
    assert all(isinstance(task.exception(), Overloaded) for task in refused)


# -- Accounts


def running_of(django: Django, clients: list[Client]) -> list[bool]:
    return [client.scope in django.scopes for client in clients]


async def test_an_account_has_half_of_the_turns_of_the_management_api(django: Django) -> None:
    application = bounded(django, num_threads=4)
    keys = ["anna", "anna-2", "anna", "anna-2"]
    many = [asking("/api/keys/", at, authorization=f"Bearer {key}") for at, key in enumerate(keys)]
    other = asking("/api/keys/", authorization="Bearer ben")

    await run(application.pages, *many, other)

    assert running_of(django, [*many, other]) == [True, True, False, False, True]


WAITING = ["/api/media-rules/test/", "/api/webhooks/7/test/", "/console/webhooks/7/test/"]
WAITING += [f"/api/models/{action}/" for action in ("check", "search", "pull")]
WAITING += ["/console/media/test/", "/console/models/add/hub/", "/console/models/add/convert/"]


async def test_requests_that_wait_for_other_servers_hold_no_turn_of_others(django: Django) -> None:
    application = bounded(django, num_threads=1)
    slow = [asking(path, at, authorization="Bearer anna") for at, path in enumerate(WAITING)]
    slow += [asking(WAITING[0], authorization="Bearer ben")]  # of the same organisation
    others = [asking(WAITING[0], authorization=f"Bearer {name}") for name in ("eve", "root")]
    quick = [asking("/api/keys/"), asking("/console/keys/")]

    await run(application.pages, *slow, *others, *quick)

    assert [resolve(path).view_name for path in WAITING]
    assert running_of(django, slow).count(True) == 1
    assert running_of(django, [*others, *quick]) == [True] * 4
