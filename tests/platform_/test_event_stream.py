"""The stream of events of pages, as an ASGI application with the database."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.sessions.models import Session
from django.test import Client

from tests.database_threads import in_thread
from vinery_accounts.base import change_signal
from vinery_accounts.models import User
from vinery_platform.web import event_stream
from vinery_platform.web.event_stream import EVENTS_PATH, MAX_OF_USER, EventStreams

pytestmark = pytest.mark.django_db(transaction=True)

Stream = tuple["asyncio.Queue[dict[str, Any]]", "asyncio.Task[None]", Callable[[], None]]


@pytest.fixture(autouse=True)
def without_ticks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: Any) -> None:
    """Nothing but a change causes an event."""
    settings.VINERY_RUN_DIR = tmp_path
    monkeypatch.setattr(event_stream, "_TICK_S", 600.0)
    monkeypatch.setattr(event_stream, "_SETTLE_S", 0.0)


@asynccontextmanager
async def opened(streams: EventStreams, cookie: bytes = b"") -> AsyncIterator[Stream]:
    """A stream of a page, of which the messages can be read, and the function with which the
    browser leaves."""
    sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    has_left = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await has_left.wait()
        return {"type": "http.disconnect"}

    scope = {"type": "http", "method": "GET", "path": EVENTS_PATH, "query_string": b""}
    scope |= {"headers": [(b"cookie", cookie)] if cookie else []}
    task = asyncio.create_task(streams(scope, receive, sent.put))  # type: ignore[arg-type]
    yield sent, task, has_left.set
    has_left.set()
    await asyncio.wait_for(task, 30)


async def next_of(sent: "asyncio.Queue[dict[str, Any]]") -> Any:
    return await asyncio.wait_for(sent.get(), 30)


async def cookie_of_session() -> bytes:
    client = Client()
    await in_thread(lambda: client.force_login(User.objects.create_user("alice")))
    name = django_settings.SESSION_COOKIE_NAME
    return f"{name}={client.cookies[name].value}".encode()


async def begun(stream: Stream) -> None:
    """Wait until the stream has sent its first event."""
    assert (await next_of(stream[0]))["status"] == 200
    assert b"event: change" in (await next_of(stream[0]))["body"]


async def test_a_page_hears_of_each_change_of_this_host() -> None:
    streams, cookie = EventStreams(lambda: False), await cookie_of_session()
    async with opened(streams, cookie) as one, opened(streams, cookie) as other:
        await begun(one)
        await begun(other)
        for _ in range(2):
            change_signal.send()
            for sent, *_ in (one, other):
                assert b"event: change" in (await next_of(sent))["body"]


async def test_only_who_signed_in_has_streams_and_not_too_many() -> None:
    streams, cookie = EventStreams(lambda: False), await cookie_of_session()
    for none in (b"", b"vinery_session=forged"):
        async with opened(streams, none) as stranger:
            assert (await next_of(stranger[0]))["status"] == 401

    pages = [opened(streams, cookie) for _ in range(MAX_OF_USER)]
    for page in pages:
        await begun(await page.__aenter__())
    async with opened(streams, cookie) as one_more:
        assert (await next_of(one_more[0]))["status"] == 503
    for page in pages:
        await page.__aexit__(None, None, None)
    async with opened(streams, cookie) as again:
        await begun(again)


async def end_session() -> None:
    await in_thread(Session.objects.all().delete)


async def test_a_stream_ends_with_its_session_and_with_its_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_stream, "_CHECK_S", 0.0)
    is_ending = asyncio.Event()

    async def end_process() -> None:
        is_ending.set()

    ends: list[Callable[[], Awaitable[None]]] = [end_process, end_session]
    for end in ends:
        is_ending.clear()
        streams, cookie = EventStreams(is_ending.is_set), await cookie_of_session()
        async with opened(streams, cookie) as (sent, task, leave):
            await begun((sent, task, leave))
            await end()
            change_signal.send()
            assert not (await next_of(sent))["more_body"]
        await in_thread(User.objects.all().delete)
