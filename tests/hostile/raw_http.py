"""Raw HTTP requests, right and wrong, and a client that reads whatever comes back."""

import asyncio
import json
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import h11

# The client leaves a server that waits for the rest of a request; a working server answers sooner.
_PATIENCE_S: Final = 60.0
_AT_ONCE: Final = 32

_HEAD: Final = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer %b\r\n"
)
_JSON: Final = b"content-type: application/json\r\n"
LIVEZ: Final = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"


@dataclass(frozen=True)
class Request:
    """The client sends the `parts` in turn, and with `closes` half-closes the connection.
    The client reads until every possible request is answered, until the end, or for `_PATIENCE_S`:
    many requests get no answer."""

    name: str
    parts: Sequence[bytes]
    closes: bool = False
    reads_to_end: bool = False


@dataclass(frozen=True)
class Answer:
    """All that came back, and whether the server closed the connection."""

    received: bytes
    is_closed: bool

    def statuses(self) -> list[int]:
        """The statuses of all responses. Raises `h11.RemoteProtocolError` if `received` is not
        HTTP, and EOFError if a response has no end."""
        rest, found = self.received, list[int]()
        while rest:
            connection = h11.Connection(h11.CLIENT)
            connection.send(h11.Request(method="GET", target="/", headers=[("host", "a")]))
            connection.send(h11.EndOfMessage())
            connection.receive_data(rest)
            if self.is_closed:
                connection.receive_data(b"")
            while not isinstance(event := connection.next_event(), h11.EndOfMessage):
                if isinstance(event, h11.InformationalResponse | h11.Response):
                    found.append(event.status_code)
                elif not isinstance(event, h11.Data):
                    raise EOFError(rest[:200])
            rest, _ = connection.trailing_data
        return found


def ask_all(address: tuple[str, int], requests: Sequence[Request]) -> list[Answer]:
    """Send all requests, each on a connection of its own, some at a time."""

    async def ask_each() -> list[Answer]:
        free = asyncio.Semaphore(_AT_ONCE)

        async def ask_when_free(request: Request) -> Answer:
            async with free:
                return await _ask(address, request)

        return await asyncio.gather(*map(ask_when_free, requests))

    return asyncio.run(ask_each())


async def _ask(address: tuple[str, int], request: Request) -> Answer:
    reader, writer = await asyncio.open_connection(*address)
    received, is_closed = b"", False
    try:
        with suppress(OSError):  # refused and closed before all was written
            for part in request.parts:
                writer.write(part)
                await writer.drain()
            if request.closes:
                writer.write_eof()
        async with asyncio.timeout(_PATIENCE_S):
            while not is_closed and not _is_enough(received, request):
                data = await reader.read(1 << 16)
                received += data
                is_closed = not data
    except TimeoutError:
        pass
    except OSError:
        is_closed = True
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    return Answer(received, is_closed)


def _is_enough(received: bytes, request: Request) -> bool:
    """Whether all answers to the requests that could be meant have arrived."""
    if not received or request.reads_to_end:
        return False
    try:
        statuses = Answer(received, is_closed=False).statuses()
    except (EOFError, h11.RemoteProtocolError):
        return False
    return len(statuses) >= b"".join(request.parts).count(b" HTTP/1")


# -- Requests -----------------------------------------------------------------------------


def with_length(key: bytes, body: bytes = b"{}") -> bytes:
    """A request in the right form, whose body lacks a field."""
    return _HEAD % key + _JSON + b"content-length: %d\r\n\r\n" % len(body) + body


def in_chunks(key: bytes, *chunks: bytes) -> bytes:
    """The same request in chunks."""
    sizes = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return _HEAD % key + _JSON + b"transfer-encoding: chunked\r\n\r\n" + sizes + b"0\r\n\r\n"


_TE: Final = b"transfer-encoding: chunked\r\n"


def _odd(part: str) -> dict[str, bytes]:
    """Forms by their names. In the file, each character is a byte."""
    forms = json.loads(Path(__file__).with_name("odd_forms.json").read_text(encoding="utf-8"))
    return {name: text.encode("latin-1") for name, text in forms[part].items()}


def smuggled(key: bytes) -> Iterator[Request]:
    """Requests without a certain end, which two servers could read differently. A server must
    refuse such requests."""
    post = _HEAD % key + _JSON
    chunked_in_1_0 = (post + _TE + b"\r\n2\r\n{}\r\n0\r\n\r\n").replace(b"HTTP/1.1", b"HTTP/1.0")
    after_head = {
        **_odd("smuggled after the first header lines"),
        "a length of thousands of digits": b"content-length: " + b"1" * 5_000 + b"\r\n\r\n{}",
    }
    forms = {
        **{name: post + rest for name, rest in after_head.items()},
        **_odd("smuggled"),
        "bare line feeds": with_length(key).replace(b"\r\n", b"\n"),
        "an encoding in HTTP 1.0": chunked_in_1_0,
        "zeros": bytes(1000) + b"\r\n\r\n",
    }
    for name, data in forms.items():
        yield Request(name, [data], reads_to_end=True)


def tolerated(key: bytes) -> Iterator[Request]:
    """Odd forms that a server may answer, or refuse."""
    post, te = _HEAD % key + _JSON, _TE + b"\r\n"
    forms = {
        **_odd("tolerated"),
        "an empty line before": b"\r\n\r\n" + with_length(key),
        "a long method": b"A" * 5_000 + b" /livez HTTP/1.1\r\nhost: a\r\n\r\n",
        "a long target": b"GET /" + b"a" * 50_000 + b" HTTP/1.1\r\nhost: a\r\n\r\n",
        "a long header": LIVEZ[:-2] + b"x-a: " + b"a" * 100_000 + b"\r\n\r\n",
        "many headers": LIVEZ[:-2] + b"".join(b"x%d: a\r\n" % at for at in range(2_000)) + b"\r\n",
        "an extension of a chunk": post + te + b"2;a=b;" + b"c" * 5_000 + b"\r\n{}\r\n0\r\n\r\n",
        "many small chunks": in_chunks(key, b"{", *[b" "] * 3_000, b"}"),
        "a trailer": post + te + b"2\r\n{}\r\n0\r\nx-a: b\r\ncontent-length: 9\r\n\r\n",
        "a long trailer": post + te + b"2\r\n{}\r\n0\r\nx-a: " + b"b" * 100_000 + b"\r\n\r\n",
        "an expectation": post + b"expect: 100-continue\r\ncontent-length: 2\r\n\r\n{}",
        "a body without a length": post + b"\r\n{}",
    }  # fmt: skip
    for name, data in forms.items():
        yield Request(name, [data])


def truncated(key: bytes) -> Iterator[Request]:
    """A request cut after each byte, where the client then leaves."""
    for name, whole in (("length", with_length(key)), ("chunks", in_chunks(key, b"{", b"}"))):
        for end in range(1, len(whole)):
            yield Request(f"{name}, {end} bytes", [whole[:end]], closes=True)


def mutated(key: bytes, seed: int, count: int) -> Iterator[Request]:
    """Right requests, one or two, with some bytes changed, lost, repeated or put in."""
    draw = random.Random(seed)
    for number in range(count):
        whole = draw.choice(
            (
                with_length(key),
                in_chunks(key, b"{", b"}"),
                LIVEZ + with_length(key),
                in_chunks(key, b"{}") + LIVEZ,
            )
        )
        data = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            _mutate(data, draw)
        cut = draw.randint(0, len(data))
        yield Request(f"mutation {number}", [bytes(data[:cut]), bytes(data[cut:])], closes=True)


_ODD: Final = (
    b"\0", b"\r", b"\n", b"\r\n", b"\r\n\r\n", b" ", b"\t", b":", b";", b"\xff", b"\x7f", b"0\r\n",
    b"transfer-encoding: chunked\r\n", b"content-length: 1\r\n", b"connection: close\r\n",
    b"x: " + b"y" * 300 + b"\r\n", b"HTTP/1.1", b"%00", b"ffffffff\r\n",
)  # fmt: skip


def _mutate(data: bytearray, draw: random.Random) -> None:
    at = draw.randrange(len(data) or 1)
    match draw.randrange(4):
        case 0 if data:
            data[at] = draw.randrange(256)
        case 1:
            del data[at : at + draw.randint(1, 12)]
        case 2:
            data[at:at] = data[at : at + draw.randint(1, 30)]
        case _:
            data[at:at] = draw.choice(_ODD)
