"""`/console/events/`: a stream that tells a page of the console when to fetch its parts again.

The stream has no data, so the rights of a page are checked where they always are. An event comes
after each change on this host, and every two seconds, because figures change without a commit, and
other hosts send no signal. Streams are no requests: they run outside Django's turns, hold no thread
and no connection to the database, and end as soon as their process is to end.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from io import BytesIO
from typing import Final

from django.contrib.auth import get_user
from django.core.handlers.asgi import ASGIRequest
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse

from vinery_accounts.base import change_signal
from vinery_accounts.base.connections import giving_back
from vinery_accounts.signin.sessions import SignedSessionMiddleware
from vinery_platform.web.bounded import refuse
from vinery_serving.core.errors import (
    InvalidKey,
    MethodNotAllowed,
    Overloaded,
    ServingError,
    ShuttingDown,
    Unavailable,
)
from vinery_serving.gateway.endpoints.bodies import disconnected
from vinery_serving.gateway.endpoints.edge import Message, Receive, Scope, Send

EVENTS_PATH: Final = "/console/events/"
MAX_STREAMS: Final = 200
MAX_OF_USER: Final = 10
_TICK_S: Final = 2.0
# Changes within this time are one event.
_SETTLE_S: Final = 0.5
# How often to look whether the session goes on, and how long a client may accept nothing.
_CHECK_S: Final = 10.0
_SEND_S: Final = 30.0
_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
_EVENT: Final = b"event: change\ndata:\n\n"


class EventStreams:
    """The streams of this web process: an ASGI application. Belongs to the event loop."""

    def __init__(self, is_ending: Callable[[], bool]) -> None:
        self._is_ending = is_ending
        self._num = 0
        self._of_users: Counter[int] = Counter()
        self._changes: set[asyncio.Event] = set()  # one of each stream
        self._listening = ExitStack()  # while there are streams
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sessions")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["method"] != "GET":
                raise MethodNotAllowed(scope["method"], allowed="GET")
            if self._is_ending():
                raise ShuttingDown
            if self._num >= MAX_STREAMS:
                raise Overloaded("Too many pages follow changes. Reload the page instead.")
            self._num += 1
            try:
                await self._serve(scope, receive, send)
            finally:
                self._num -= 1
        except ServingError as error:
            await refuse(scope, send, error)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises `ServingError` while nothing has been sent."""
        try:
            user_id = await self._user_of(scope)
        except DatabaseError:
            raise Unavailable("The database does not answer. Try again.") from None
        if user_id is None:
            raise InvalidKey("Sign in first.")
        if self._of_users[user_id] >= MAX_OF_USER:
            raise Overloaded(f"You have {MAX_OF_USER} pages open that follow changes. Close one.")
        self._of_users[user_id] += 1
        left = asyncio.create_task(disconnected(receive), name="disconnect")
        changed = asyncio.Event()
        if not self._changes:
            self._listening.enter_context(change_signal.listening(self._note))
        self._changes.add(changed)
        try:
            await self._stream(scope, send, user_id, changed, left)
        finally:
            left.cancel()
            self._changes.discard(changed)
            if not self._changes:
                self._listening.close()
            self._of_users[user_id] -= 1

    def _note(self) -> None:
        for each in self._changes:
            each.set()

    async def _stream(
        self,
        scope: Scope,
        send: Send,
        user_id: int,
        changed: asyncio.Event,
        left: asyncio.Task[Message],
    ) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        checked_at_s = time.monotonic()
        while not (left.done() or self._is_ending()):
            if time.monotonic() - checked_at_s > _CHECK_S:
                if not await self._goes_on(scope, user_id):
                    break
                checked_at_s = time.monotonic()
            async with asyncio.timeout(_SEND_S):
                await send({"type": "http.response.body", "body": _EVENT, "more_body": True})
            await asyncio.wait([left], timeout=_SETTLE_S)
            waiting = asyncio.create_task(changed.wait())
            rest_s = _TICK_S - _SETTLE_S
            await asyncio.wait({left, waiting}, timeout=rest_s, return_when="FIRST_COMPLETED")
            waiting.cancel()
            changed.clear()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _goes_on(self, scope: Scope, user_id: int) -> bool:
        """Whether the session has not ended; an outage of the database ends none."""
        try:
            return await self._user_of(scope) == user_id
        except DatabaseError:
            return True

    async def _user_of(self, scope: Scope) -> int | None:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, giving_back(_user_of), scope)


def _user_of(scope: Scope) -> int | None:
    request = ASGIRequest(scope, BytesIO())
    SignedSessionMiddleware(_no_response).process_request(request)
    user = get_user(request)
    return user.pk if user.is_authenticated else None


def _no_response(_: HttpRequest) -> HttpResponse:
    return HttpResponse()
