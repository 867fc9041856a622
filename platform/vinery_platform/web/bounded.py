"""Limits between clients and Django: on bodies, which Django reads at any length before it looks at
the key, and on how many requests run: their threads and the event loop share Python's global lock.
"""

import asyncio
import re
from collections.abc import Callable, Hashable
from contextlib import ExitStack, suppress
from typing import Final

from django.conf import settings

from vinery_accounts.base.errors import KeyRefused
from vinery_accounts.keys.table import Caller
from vinery_serving.core.errors import Overloaded, ServingError
from vinery_serving.core.turns import FairTurns, NoTurn
from vinery_serving.gateway.endpoints.bodies import (
    BodyBudget,
    BodyLimits,
    ClientGone,
    disconnected,
    read_body,
)
from vinery_serving.gateway.endpoints.callers import address_of
from vinery_serving.gateway.endpoints.edge import (
    App,
    Message,
    Receive,
    Scope,
    Send,
    header,
    send_error,
    send_whole,
)
from vinery_serving.gateway.endpoints.refusals import REFUSALS, Reason

_MAX_WAITING: Final = 256
_MAX_WAIT_S: Final = 10.0
_PAGES: Final = ("/admin", "/accounts", "/console")
# These wait for others' servers, as long as a hub, a receiver or a host of files likes.
_WAITING: Final = re.compile(
    r"/api/(media-rules/test|webhooks/[^/]+/test|models/(check|search|pull))/?"
    r"|/console/(media/test|webhooks/[^/]+/test|models/add/.*)/?"
)
_MAX_WAITING_FOR_OTHERS: Final = 4
_WAIT_FOR_OTHERS_S: Final = 30.0
_UNKNOWN: Final = "unknown"
# Bodies in memory, as multiples of the largest.
_BODIES_IN_ALL: Final = 32
_BODIES_OF_ADDRESS: Final = 8
# Of each body, whose client is perhaps not signed in: more than a form of the sign-in has.
_FREE_BYTES: Final = 8 * 1024


class BoundedDjango:
    """Django with turns of its own for pages, the management API, requests that wait for others'
    servers, static files and the rest. None of these kinds is held up by many requests of another
    one. Half of the management API's turns are for one account at most, and one of the turns for
    others' servers for an organisation."""

    def __init__(
        self, django: App, *, num_threads: int, authenticate: Callable[[bytes | None], Caller]
    ) -> None:
        """`authenticate` returns the caller of a key, or raises `KeyRefused`."""
        self._django = django
        self._authenticate = authenticate
        self._turns = {
            "pages": _turns(num_threads),
            "management": _turns(num_threads, max_each=max(1, num_threads // 2)),
            "waiting": _turns(_MAX_WAITING_FOR_OTHERS, max_each=1, wait_s=_WAIT_FOR_OTHERS_S),
            "static": _turns(2),
            "models": _turns(2),
        }
        largest = settings.VINERY_MAX_FORM_BYTES
        self._limits = BodyLimits(largest, settings.VINERY_BODY_TIMEOUT_S)
        self._bodies = BodyBudget(
            _BODIES_IN_ALL * largest, _BODIES_OF_ADDRESS * largest, _FREE_BYTES
        )

    async def pages(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        try:
            if path.startswith("/static/"):
                await self._run("static", scope, receive, send)
            elif _WAITING.fullmatch(path):
                await self._with_body("waiting", scope, receive, send)
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
        if scope["path"].startswith("/api/") and not _has_credentials(scope):
            await self._run(kind, scope, receive, send)
            return
        with self._bodies.claim(_client(scope)) as claim:
            body = await read_body(scope, receive, self._limits, claim)
            await self._run(kind, scope, receive, send, body)

    async def _run(
        self, kind: str, scope: Scope, receive: Receive, send: Send, body: bytes = b""
    ) -> None:
        """Run Django in a turn, which ends with the view: an answer may be read slowly. Raises
        `ClientGone` if the client leaves before its turn."""
        turns, client = self._turns[kind], self._owner(kind, scope)
        await _begin(turns, client, receive)
        with ExitStack() as turn:
            turn.callback(turns.end, client)

            async def send_and_end_turn(message: Message) -> None:
                turn.close()
                await send(message)

            await self._django(scope, _with_body(body, receive), send_and_end_turn)

    def _owner(self, kind: str, scope: Scope) -> Hashable:
        """Whose turn a request takes: of the account or the organisation of its key, else of the
        address."""
        if kind not in ("management", "waiting"):
            return _client(scope)
        authorization = header(scope, b"authorization")
        if authorization is None:
            return _client(scope)
        try:
            caller = self._authenticate(authorization)
        except KeyRefused:
            return _client(scope)
        if kind == "waiting" and caller.organization_id is not None:
            return "organization", caller.organization_id
        return "user", caller.user_id


def _turns(max_running: int, max_each: int | None = None, wait_s: float = _MAX_WAIT_S) -> FairTurns:
    """One client can use half of the queue, so that others find room."""
    return FairTurns(
        max_running,
        refuse=_refuse_turn,
        max_waiting=_MAX_WAITING // 2,
        max_waiting_in_all=_MAX_WAITING,
        wait_s=wait_s,
        max_each=max_each or max_running,
    )


def _refuse_turn(_: NoTurn, __: float) -> ServingError:
    REFUSALS.count(Reason.PAGES)
    return Overloaded("Too many pages are being requested. Try again in a moment.")


async def _begin(turns: FairTurns, client: Hashable, receive: Receive) -> None:
    """Wait for a turn, or until the client leaves. Raises `ClientGone` and `Overloaded`."""
    if turns.begin_now(client):
        return
    turn = asyncio.create_task(turns.begin(client), name="turn")
    leaving = asyncio.create_task(disconnected(receive), name="leaving")
    try:
        await asyncio.wait([turn, leaving], return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        if turn.done() and turn.exception() is None:
            turns.end(client)
        raise
    finally:
        leaving.cancel()
        turn.cancel()  # has no effect if it has come
    if not turn.done():
        raise ClientGone
    turn.result()


def _with_body(body: bytes, receive: Receive) -> Receive:
    """`receive` for an application, which gets this body first, and the disconnect then."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await disconnected(receive)

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
