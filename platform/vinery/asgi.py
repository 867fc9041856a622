"""The ASGI application: health, generation, and Django for the rest.

The runtime starts with the server's lifespan, or with the first request on servers that
have none, such as Daphne.
"""

from __future__ import annotations

import os
from typing import cast

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "vinery.settings")
django_application = get_asgi_application()

# These need the apps that the line above has loaded.
from accounts.limits.current import read_levels_with, read_state_with  # noqa: E402
from serving.edge import App, Receive, Scope, Send  # noqa: E402
from serving.routing import api_application  # noqa: E402
from serving.runtime import Runtime, runtime  # noqa: E402
from vinery.health import HealthApplication  # noqa: E402

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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        await self._runtime.start()
        path: str = scope["path"]
        if self._health.knows(path):
            await self._health(scope, receive, send)
        elif path == "/" or path.startswith(_FOR_PEOPLE):
            await self._rest(scope, receive, send)
        else:
            await self._api(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self._runtime.start()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self._runtime.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return


# The console tells what is left of limits, and knows nothing of serving.
read_levels_with(runtime().limits.limiter.levels)
read_state_with(lambda: runtime().limits.state)
application = Application(runtime(), cast(App, django_application))
