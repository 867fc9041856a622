"""`python -m benchmarks.scripted_engine SOCKET ...`: engines that compute nothing.

SOCKET_SECRET is that of the sockets, in hexadecimal digits. With `--host HOST --port PORT` instead,
the engine is a server that answers each request as a chat.

The engine speaks its side of the transport, so that the web process takes all of a request's time.
It answers one token at once, and sends longer answers in frames of `FRAME_TOKENS` for each stream
every `FRAME_S`; of each connection the oldest `SLOTS` run.
"""

from __future__ import annotations

import asyncio
import os
import re
import selectors
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from vinery_serving.transport.handshake import NUM_BYTES, Handshake, socket_key
from vinery_serving.transport.messages import (
    FINISH_LENGTH,
    PROTOCOL_VERSION,
    Accepted,
    Cancel,
    EngineStats,
    Hello,
    Ping,
    Pong,
    StepOutputs,
    Submit,
    ToEngine,
    TokenOutput,
)
from vinery_serving.transport.sockets import FrameReader, pack

_SLOTS: Final = int(os.environ.get("SLOTS", "64"))
_HELLO: Final = Hello(PROTOCOL_VERSION, 1, 2048, max_running=_SLOTS)
_STATS: Final = EngineStats(last_token_age_s=0.0)
_ANSWER: Final = (100,)  # an ordinary token of the reference model
# As many as of two steps of the reference model with 16 streams.
FRAME_TOKENS: Final = int(os.environ.get("FRAME_TOKENS", "2"))
_FRAME_S: Final = float(os.environ.get("FRAME_S", "0.008"))
_left: Final[dict[socket.socket, dict[int, int]]] = {}  # tokens, by the ids of a peer's streams

_CHAT: Final = (
    b'{"id":"chatcmpl-1","object":"chat.completion","created":0,"model":"tiny-chat","choices":'
    b'[{"index":0,"message":{"role":"assistant","content":"yes"},"finish_reason":"length"}],'
    b'"usage":{"prompt_tokens":20,"completion_tokens":1,"total_tokens":21}}'
)
_HTTP_ANSWER: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
    % (len(_CHAT), _CHAT)
)


def main() -> None:
    """Serve until killed."""
    if sys.argv[1] == "--host":
        asyncio.run(_serve_http(sys.argv[2], int(sys.argv[4])))
    selector, next_frame_at = selectors.DefaultSelector(), 0.0
    for path in map(Path, sys.argv[1:]):
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path.unlink(missing_ok=True)  # of a killed engine
        server.bind(str(path))
        server.listen()
        selector.register(server, selectors.EVENT_READ, path)
    while True:
        wait_s = max(0.0, next_frame_at - time.monotonic()) if any(_left.values()) else None
        for key, _ in selector.select(wait_s):
            if isinstance(key.data, FrameReader):
                _answer(selector, key.fileobj, key.data)  # type: ignore[arg-type]
                continue
            peer, _ = key.fileobj.accept()  # type: ignore[union-attr]
            _shake_hands(peer, key.data)
            peer.sendall(pack(_HELLO))
            selector.register(peer, selectors.EVENT_READ, FrameReader())
            _left[peer] = {}
        if (now := time.monotonic()) >= next_frame_at:
            # A late frame does not make the next one late.
            next_frame_at = max(next_frame_at, now - _FRAME_S) + _FRAME_S
            for peer, left in _left.items():
                _send_frame(peer, left)


async def _serve_http(host: str, port: int) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
                await reader.readexactly(int(length[1]) if length else 0)
                writer.write(_HTTP_ANSWER)
        writer.close()

    await (await asyncio.start_server(answer, host, port)).serve_forever()


def _shake_hands(peer: socket.socket, path: Path) -> None:
    key = socket_key(bytes.fromhex(os.environ["SOCKET_SECRET"]), path)
    handshake = Handshake(key, listens=True)
    peer.sendall(handshake.opening)
    while not handshake.is_done:
        peer.sendall(handshake.feed(peer.recv(NUM_BYTES))[0])


def _answer(selector: selectors.BaseSelector, peer: socket.socket, frames: FrameReader) -> None:
    try:
        received = peer.recv(1 << 18)
        replies = [_reply(frame, _left[peer]) for frame in frames.feed(received)]
        peer.sendall(b"".join(replies))
    except OSError:
        received = b""
    if not received:
        selector.unregister(peer)
        del _left[peer]
        peer.close()


def _send_frame(peer: socket.socket, left: dict[int, int]) -> None:
    outputs = []
    for id_, num_left in list(left.items())[:_SLOTS]:
        num_tokens = min(FRAME_TOKENS, num_left)
        is_last = num_tokens == num_left
        outputs.append(TokenOutput(id_, _ANSWER * num_tokens, FINISH_LENGTH if is_last else None))
        left[id_] -= num_tokens
        if is_last:
            del left[id_]
    if outputs:
        peer.sendall(pack(StepOutputs(tuple(outputs))))


def _reply(frame: bytes, left: dict[int, int]) -> bytes:
    message = msgspec.msgpack.decode(frame, type=ToEngine)
    if isinstance(message, Ping):
        return pack(Pong(message.nonce, _STATS))
    if isinstance(message, Submit) and message.max_new_tokens > 1:
        if len(left) >= _SLOTS:
            left[message.id] = message.max_new_tokens
            return pack(Accepted(message.id))
        left[message.id] = message.max_new_tokens - 1
        first = TokenOutput(message.id, _ANSWER, None, 0.0, 0.0)
        return pack(Accepted(message.id)) + pack(StepOutputs((first,)))
    if isinstance(message, Cancel):
        left.pop(message.id, None)
    if isinstance(message, Submit):
        output = TokenOutput(message.id, _ANSWER, FINISH_LENGTH, 0.0, 0)
        return pack(Accepted(message.id)) + pack(StepOutputs((output,)))
    return b""


if __name__ == "__main__":
    main()
