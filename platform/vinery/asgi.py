"""The ASGI application: health, generation, and Django for the rest.

The runtime starts with the server's lifespan, or with the first request on servers that
have none, such as Daphne. While the database is away it cannot start: probes are answered all
the same, and each request tries anew.
"""

from __future__ import annotations

import logging
import os
from typing import cast

from django.core.asgi import get_asgi_application
from django.db import Error

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "vinery.settings")
django_application = get_asgi_application()

# These need the apps that the line above has loaded.
from accounts.limits.service import show_in_pages  # noqa: E402
from serving.core.errors import Unavailable  # noqa: E402
from serving.http.edge import ApiEdge, App, Receive, Scope, Send  # noqa: E402
from serving.http.routing import api_application  # noqa: E402
from serving.runtime.runtime import Runtime, runtime  # noqa: E402
from vinery.health import HealthApplication  # noqa: E402
from vinery.unavailable import ask_whether_away  # noqa: E402

log = logging.getLogger(__name__)

# What browsers show to people. All the rest is for programs, and gets their headers:
# a base URL without its `/v1` has to be readable in a browser's client too.
_FOR_PEOPLE = ("/admin", "/accounts", "/console", "/static/", "/api/")


class Application:
    """Sends each scope where it belongs."""

    def __init__(self, process: Runtime, rest: App) -> None:
        self._runtime = process
        self._rest = rest
        self._health = HealthApplication(process)
        self._api = api_application(process, rest)
        self._not_started = ApiEdge(_say_that_it_waits)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        path: str = scope["path"]
        if self._health.knows(path):
            self._runtime.begin()
            await self._health(scope, receive, send)
        elif not await self._is_started():
            await self._not_started(scope, receive, send)
        elif path == "/" or path.startswith(_FOR_PEOPLE):
            await self._rest(scope, receive, send)
        else:
            await self._api(scope, receive, send)

    async def _is_started(self) -> bool:
        """Whether the start has gone well, now or before."""
        try:
            await self._runtime.start()
        except Error as error:
            log.warning("the start waits for the database: %s", str(error).partition("\n")[0])
            return False
        return True

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self._is_started()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self._runtime.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return


async def _say_that_it_waits(scope: Scope, receive: Receive, send: Send) -> None:
    raise Unavailable("The database does not answer, so this process cannot start. Try again.")


# The console shows what is left of limits, and does not import serving.
show_in_pages(runtime().limits)
ask_whether_away(lambda: runtime().database.is_unavailable)
application = Application(runtime(), cast(App, django_application))
