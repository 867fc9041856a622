"""Daphne sends an application the same lifespan events as uvicorn."""

from __future__ import annotations

from tests.platform_ import scripts

_END = """
import asyncio
from vinery.process.daphne_server import end_lifespan

async def application(scope, receive, send):
    assert scope["type"] == "lifespan"
    for word in ("startup", "shutdown"):
        message = await receive()
        print(message["type"])
        await send({"type": f"lifespan.{word}.complete"})

asyncio.run(end_lifespan(application))
"""


def test_the_application_receives_startup_and_shutdown() -> None:
    result = scripts.run_python("-c", _END)

    assert result.stdout.split() == ["lifespan.startup", "lifespan.shutdown"], result.stderr
