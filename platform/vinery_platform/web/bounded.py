"""What stands between clients and Django: limits on bodies, and on how many requests run.

Django reads a body of any length into a temporary file before a view or the check of a key sees
the request, and runs each request in a thread, as many as there are. Threads of pages and the
event loop share Python's global lock, so few of them may run.
"""

import asyncio
from contextlib import suppress
from typing import Final

from django.conf import settings

from vinery_serving.core.errors import Overloaded, ServingError
from vinery_serving.http.bodies import BodyBudget, BodyLimits, ClientGone, read_body
from vinery_serving.http.callers import address_of
from vinery_serving.http.client_queues import ClientQueues
from vinery_serving.http.edge import (
    App,
    Message,
    Receive,
    Scope,
    Send,
    header,
    send_error,
    send_whole,
)
from vinery_serving.http.refusals import REFUSALS, Reason

# -- How many requests of one kind run at once, and in which order others wait


class Turns:
    """A number of requests run; a bounded number waits, in turn by client. Belongs to the event
    loop.

    One client can use half of the queue, so that others find room in it.
    """

    def __init__(self, *, max_running: int, max_waiting: int, max_wait_s: float) -> None:
        self._max_running = max_running
        self._max_waiting = max_waiting
        self._max_of_client = max(max_waiting // 2, 1)
        self._max_wait_s = max_wait_s
        self._queues = ClientQueues()
        self.num_running = 0

    @property
    def num_waiting(self) -> int:
        return self._queues.num_waiting

    def begin_now(self) -> bool:
        """Begin a turn, which `end` ends, if there is one."""
        if self.num_running >= self._max_running:
            return False
        self.num_running += 1
        return True

    async def begin(self, client: str) -> None:
        """Wait for a turn, which `end` ends. Raises `Overloaded`."""
        if self.begin_now():
            return
        num_of_client = self._queues.num_of(client)
        if self.num_waiting >= self._max_waiting or num_of_client >= self._max_of_client:
            raise _overloaded()
        turn = self._queues.add(client)
        try:
            async with asyncio.timeout(self._max_wait_s):
                await turn
        except BaseException as error:  # also the cancellation of a request whose client left
            if not self._queues.leave(client, turn):
                self.end()  # the turn came meanwhile, and goes to another request
            if isinstance(error, TimeoutError):
                raise _overloaded() from None
            raise

    def end(self) -> None:
        """Give the turn to the next request."""
        if not self._queues.grant():
            self.num_running -= 1


def _overloaded() -> Overloaded:
    REFUSALS.count(Reason.PAGES)
    return Overloaded("Too many pages are being requested. Try again in a moment.")


_MAX_WAITING: Final = 256
_MAX_WAIT_S: Final = 10.0
_PAGES: Final = ("/admin", "/accounts", "/console")
_UNKNOWN: Final = "unknown"
# Bodies in memory, as multiples of the largest.
_BODIES_IN_ALL: Final = 32
_BODIES_OF_ADDRESS: Final = 8
# Of each body, whose client is perhaps not signed in: more than a form of the sign-in has.
_FREE_BYTES: Final = 8 * 1024


class BoundedDjango:
    """Django with turns of its own for pages, the management API, static files and the rest.

    None of these kinds is held up by many requests of another one.
    """

    def __init__(self, django: App, *, num_threads: int) -> None:
        self._django = django
        self._turns = {
            kind: _turns(number)
            for kind, number in {
                "pages": num_threads,
                "management": num_threads,
                "static": 2,
                "models": 2,
            }.items()
        }
        largest = settings.VINERY_MAX_FORM_BYTES
        self._limits = BodyLimits(largest, settings.VINERY_BODY_TIMEOUT_S)
        self._bodies = BodyBudget(
            _BODIES_IN_ALL * largest, _BODIES_OF_ADDRESS * largest, _FREE_BYTES
        )

    async def pages(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pages, static files and the management API, with their bodies."""
        path: str = scope["path"]
        try:
            if path.startswith("/static/"):
                await self._run("static", scope, receive, send)
            elif path.startswith("/api/"):
                await self._with_body("management", scope, receive, send)
            else:
                await self._with_body("pages", scope, receive, send)
        except ClientGone:
            return
        except ServingError as error:
            await refuse(scope, send, error)

    async def models(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The rest of the OpenAI-compatible API, which has no bodies. Raises `ServingError`."""
        with suppress(ClientGone):
            await self._run("models", scope, receive, send)

    async def _with_body(self, kind: str, scope: Scope, receive: Receive, send: Send) -> None:
        if kind == "management" and not _has_credentials(scope):
            await self._run(kind, scope, receive, send)
            return
        with self._bodies.claim(_client(scope)) as claim:
            body = await read_body(scope, receive, self._limits, claim)
            await self._run(kind, scope, receive, send, body)

    async def _run(
        self, kind: str, scope: Scope, receive: Receive, send: Send, body: bytes = b""
    ) -> None:
        """Run Django in a turn, which ends with the view: an answer may be read slowly.

        Raises `ClientGone` if the client leaves before its turn.
        """
        turns = self._turns[kind]
        await _begin(turns, _client(scope), receive)
        has_turn = True

        def end_turn() -> None:
            nonlocal has_turn
            if has_turn:
                has_turn = False
                turns.end()

        async def send_and_end_turn(message: Message) -> None:
            end_turn()
            await send(message)

        try:
            await self._django(scope, _with_body(body, receive), send_and_end_turn)
        finally:
            end_turn()


def _turns(max_running: int) -> Turns:
    return Turns(max_running=max_running, max_waiting=_MAX_WAITING, max_wait_s=_MAX_WAIT_S)


async def _begin(turns: Turns, client: str, receive: Receive) -> None:
    """Wait for a turn, or until the client leaves. Raises `ClientGone` and `Overloaded`."""
    if turns.begin_now():
        return
    turn = asyncio.create_task(turns.begin(client), name="turn")
    leaving = asyncio.create_task(_disconnect(receive), name="leaving")
    try:
        await asyncio.wait([turn, leaving], return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        if turn.done() and turn.exception() is None:
            turns.end()
        raise
    finally:
        leaving.cancel()
        turn.cancel()  # has no effect if it has come
    if not turn.done():
        raise ClientGone
    turn.result()


async def _disconnect(receive: Receive) -> Message:
    """Wait until the client leaves, and ignore what comes of its body."""
    while (message := await receive())["type"] != "http.disconnect":
        """There may be more of it."""
    return message


def _with_body(body: bytes, receive: Receive) -> Receive:
    """`receive` for an application, which gets this body first, and the disconnect then."""
    is_first = True

    async def replay() -> Message:
        nonlocal is_first
        if is_first:
            is_first = False
            return {"type": "http.request", "body": body, "more_body": False}
        return await _disconnect(receive)

    return replay


def _has_credentials(scope: Scope) -> bool:
    return header(scope, b"authorization") is not None or header(scope, b"cookie") is not None


def _client(scope: Scope) -> str:
    return address_of(scope) or _UNKNOWN


async def refuse(scope: Scope, send: Send, error: ServingError) -> None:
    """Send an error: as text to a browser that wants a page, as JSON to others."""
    path: str = scope["path"]
    if not path.startswith(_PAGES) and path != "/":
        await send_error(send, error, scope)
        return
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")]
    if error.retry_after_s is not None:
        headers.append((b"retry-after", str(error.retry_after_s).encode()))
    await send_whole(send, error.status, headers, error.message.encode())
