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
from serving.edge import App, Receive, Scope, Send  # noqa: E402
from serving.routing import api_application  # noqa: E402
from serving.runtime import Runtime, runtime  # noqa: E402
from vinery.health import HealthApplication  # noqa: E402

_TREES = ("/v1", "/v3")


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
        if path.startswith(_TREES) and path[3:4] in ("", "/"):
            await self._api(scope, receive, send)
        elif self._health.knows(path):
            await self._health(scope, receive, send)
        else:
            await self._rest(scope, receive, send)

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


application = Application(runtime(), cast(App, django_application))
