"""The ASGI application: health, the API, and Django for the rest.

The runtime starts with the server's lifespan, or with the first request on servers without one,
such as Daphne. Without database and sealed copies the runtime cannot start: health paths still
respond, and other requests are refused at once.
"""

import asyncio
import os
from contextlib import suppress
from typing import Final, cast

import django
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.urls import get_resolver

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "vinery_platform.settings")
django.setup(set_prefix=False)

# These need the apps that the line above loads.
from vinery_accounts.console.overview import provide  # noqa: E402
from vinery_accounts.limits.service import show_in_pages  # noqa: E402
from vinery_platform.operations.health import HealthApplication, MetricsAccess, problems  # noqa: E402
from vinery_platform.processes import heartbeats  # noqa: E402
from vinery_platform.processes.connections import MAX_UNSENT_BYTES  # noqa: E402
from vinery_platform.processes.loop_watch import loop_watch  # noqa: E402
from vinery_platform.web.bounded import BoundedDjango, refuse  # noqa: E402
from vinery_platform.web.event_stream import EVENTS_PATH, EventStreams  # noqa: E402
from vinery_platform.web.middleware import ask_whether_unavailable  # noqa: E402
from vinery_platform.web.serving_api import ask_engines  # noqa: E402
from vinery_serving.core.errors import ShuttingDown, Unavailable  # noqa: E402
from vinery_serving.gateway.endpoints.answers import api_application  # noqa: E402
from vinery_serving.gateway.endpoints.bodies import skip_body  # noqa: E402
from vinery_serving.gateway.endpoints.edge import ApiEdge, App, Receive, Scope, Send  # noqa: E402
from vinery_serving.gateway.state.runtime import Runtime, runtime  # noqa: E402
from vinery_serving.models.engine_work import show_engine_work  # noqa: E402

# Django handles these. The API handles all other paths, with CORS headers: a browser's client must
# be able to read the 404 of a base URL without `/v1`.
_START_UP_S: Final = 0.5
_DJANGO_PATHS = ("/admin", "/accounts", "/console", "/static/", "/api/", "/docs")


class _Django(ASGIHandler):
    """Django, with answers in parts of which a client that does not read holds one or two."""

    chunk_size = MAX_UNSENT_BYTES


class Application:
    def __init__(self, process: Runtime, rest: App) -> None:
        self._runtime = process
        self._django = BoundedDjango(
            rest, num_threads=settings.VINERY_PAGE_THREADS, authenticate=process.keys.authenticate
        )
        access = MetricsAccess(
            settings.VINERY_METRICS_TOKEN.encode(), bool(settings.VINERY_PUBLIC_URL)
        )
        self._health = HealthApplication(process, access)
        self._api = api_application(process, self._django.models)
        self._events = EventStreams(lambda: process.drain.is_ending)
        self._not_started = ApiEdge(_respond_unavailable)
        self._shutting_down = ApiEdge(_respond_shutting_down)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
            return
        if scope["path"] == EVENTS_PATH:
            await self._events(scope, receive, send)
            return
        loop_watch.enter()
        try:
            await self._respond(scope, receive, send)
        finally:
            loop_watch.leave()

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if self._health.knows(path):
            self._runtime.begin()
            await self._health(scope, receive, send)
        elif self._runtime.drain.is_begun:
            await self._refuse(scope, receive, send)
        else:
            self._runtime.drain.enter()
            try:
                await self._answer(path, scope, receive, send)
            finally:
                self._runtime.drain.leave()

    async def _answer(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        if not await self._runtime.start():
            await self._not_started(scope, receive, send)
        elif path == "/" or path.startswith(_DJANGO_PATHS):
            await self._django.pages(scope, receive, send)
        else:
            await self._api(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        await skip_body(scope, receive)
        if scope["path"] == "/" or scope["path"].startswith(_DJANGO_PATHS):
            await refuse(scope, send, ShuttingDown())
        else:
            await self._shutting_down(scope, receive, send)

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": f"lifespan.startup.{await self._start_up()}"})
            else:
                await self._runtime.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _start_up(self) -> str:
        """A process that succeeds another one takes connections once it can answer, and ends if it
        cannot. Others take them soon, since health paths answer in any case."""
        if heartbeats.is_successor():
            return "complete" if await self._runtime.start() else "failed"
        with suppress(TimeoutError):
            async with asyncio.timeout(_START_UP_S):
                await self._runtime.start()
        return "complete"


async def _respond_unavailable(scope: Scope, receive: Receive, send: Send) -> None:
    raise Unavailable(
        "The database does not answer, and there is no usable copy of its keys, limits and models, "
        "so this process cannot start. Try again."
    )


async def _respond_shutting_down(scope: Scope, receive: Receive, send: Send) -> None:
    raise ShuttingDown


# The pages' code, which Django would import in the event loop at the first request of a client.
get_resolver().url_patterns  # noqa: B018


def __getattr__(name: str) -> Application:
    """`application` is made when a server asks for it: a process may only import this module."""
    if name != "application":
        raise AttributeError(name)
    # The console shows the state of limits, but may not import serving.
    show_in_pages(runtime().limits)
    provide(lambda: problems(runtime()))
    # The management API shows what engines do now, and the catalog may not import the runtime.
    show_engine_work(ask_engines)
    ask_whether_unavailable(lambda: runtime().database.is_unavailable)
    made = globals()[name] = Application(runtime(), cast(App, _Django()))
    return made
