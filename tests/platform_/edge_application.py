"""A web server as the platform runs it, with a small application.

`python -m tests.platform_.edge_application LIMITS` prints its port. LIMITS are the fields of
`ConnectionLimits` in JSON.
"""

import asyncio
import json
import socket
import sys
from typing import Any

LARGE_BYTES = 2**24
_PART_BYTES = 2**12


async def application(scope: Any, receive: Any, send: Any) -> None:
    """`/now` answers without a body, `/refusals` with the counted refusals; `/wait` waits until
    its client leaves, `/never` for ever; `/large` has a large answer in parts. Others wait for the
    body and answer with its length and the headers."""
    if scope["type"] == "lifespan":
        await _acknowledge(receive, send)
    elif scope["path"] == "/now":
        await _answer(send, {})
    elif scope["path"] == "/refusals":
        from vinery_serving.gateway.endpoints.refusals import REFUSALS

        await _answer(send, dict(REFUSALS.nums))
    elif scope["path"] == "/wait":
        while (await receive())["type"] != "http.disconnect":
            pass
        await _answer(send, {})
    elif scope["path"] == "/never":
        await asyncio.Event().wait()
    elif scope["path"] == "/large":
        await _answer_in_parts(send)
    else:
        await _echo(scope, receive, send)


async def _acknowledge(receive: Any, send: Any) -> None:
    while True:
        event = (await receive())["type"]
        await send({"type": f"{event}.complete"})
        if event == "lifespan.shutdown":
            sys.stderr.write("the lifespan has ended\n")
            return


async def _echo(scope: Any, receive: Any, send: Any) -> None:
    num_bytes, has_more = 0, True
    while has_more:
        message = await receive()
        num_bytes += len(message.get("body", b""))
        has_more = message.get("more_body", False)
    names = [name.decode() for name, _ in scope["headers"]]
    answer = {"path": scope["path"], "num_bytes": num_bytes, "headers": names}
    await _answer(send, answer)


async def _answer_in_parts(send: Any) -> None:
    headers = [(b"content-length", str(LARGE_BYTES).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for sent in range(0, LARGE_BYTES, _PART_BYTES):
        is_last = sent + _PART_BYTES == LARGE_BYTES
        part = bytes(_PART_BYTES)
        await send({"type": "http.response.body", "body": part, "more_body": not is_last})


async def _answer(send: Any, answer: object) -> None:
    body = json.dumps(answer).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def serve(limits: str) -> None:
    from vinery_platform.processes import uvicorn_server
    from vinery_platform.processes.connections import ConnectionLimits
    from vinery_serving.gateway.state.drain import Drain

    sock = socket.create_server(("127.0.0.1", 0), backlog=2048)
    sock.setblocking(False)
    sys.stdout.write(f"{sock.getsockname()[1]}\n")
    sys.stdout.flush()
    own = ConnectionLimits(**json.loads(limits))
    uvicorn_server.serve(application, sock, Drain(), lambda: 2.0, own)


if __name__ == "__main__":
    serve(sys.argv[1])
