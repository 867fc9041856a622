"""Hostile clients that need more than one request: many connections, bodies and headers that do
not end, answers that are not read, clients that leave.

All come from another address than the neighbour's: 127.0.0.2.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final

from tests.hostile.case import CHAT, COMPLETIONS, MODEL, with_fields
from tests.hostile.send import Target

SOURCE: Final = "127.0.0.2"
_BLOCK: Final = 1 << 20
_SEND_TIMEOUT_S: Final = 5.0
_LOGIN: Final = b"GET /accounts/login/ HTTP/1.1\r\nhost: localhost\r\n\r\n"

# Returns when the client has left.
Act = Callable[[Target], None]


# -- Connections --------------------------------------------------------------------------


@contextmanager
def _connections(target: Target, count: int) -> Iterator[list[socket.socket]]:
    """As many connections as the server accepts, up to `count`."""
    with ExitStack() as stack:
        made: list[socket.socket] = []
        with suppress(OSError):
            for _ in range(count):
                made.append(stack.enter_context(_connection(target)))
        yield made


def _connection(target: Target, source: str = SOURCE) -> socket.socket:
    return socket.create_connection(target.address, _SEND_TIMEOUT_S, (source, 0))


def _write(connection: socket.socket, data: bytes) -> bool:
    """Whether the server has taken all data in time."""
    try:
        connection.sendall(data)
    except OSError:  # refused and closed, or the server reads no more
        return False
    return True


def _write_blocks(connection: socket.socket, block: bytes, count: int) -> None:
    for _ in range(count):
        if not _write(connection, block):
            return


def _read_for(connections: Sequence[socket.socket], duration_s: float) -> None:
    """Read from each connection in turn."""
    end_s = time.monotonic() + duration_s
    for connection in connections:
        with suppress(OSError):
            connection.settimeout(max(0.01, end_s - time.monotonic()))
            connection.recv(1 << 16)


def _head(target: Target, path: str, length: int, method: str = "POST") -> bytes:
    return (
        f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {target.api_key}\r\n"
        f"content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    ).encode()


def _request(target: Target, path: str, **fields: Any) -> bytes:
    body = json.dumps(with_fields(path, **fields)).encode()
    return _head(target, path, len(body)) + body


# -- Clients ------------------------------------------------------------------------------


def _endless(begin: Callable[[Target], bytes], block: bytes, count: int) -> Act:
    """Sends a beginning, and then blocks while the server takes blocks."""

    def act(target: Target) -> None:
        with _connections(target, 1) as made:
            for connection in made:
                _write(connection, begin(target))
                _write_blocks(connection, block, count)
                _read_for(made, 1.0)

    return act


def _body_without_end(path: str) -> Act:
    return _endless(lambda target: _head(target, path, 15_000_000_000), bytes(_BLOCK), 8)


def _chunked_head(target: Target) -> bytes:
    return _head(target, CHAT, 0).replace(b"content-length: 0", b"transfer-encoding: chunked")


def _unfinished_bodies(target: Target) -> None:
    with _connections(target, 30) as made:
        for connection in made:
            _write(connection, _head(target, CHAT, 2 * _BLOCK))
            _write(connection, bytes(_BLOCK))
        time.sleep(1.0)


def _idle_connections(target: Target) -> None:
    with _connections(target, 300) as made:
        for connection in made[::2]:
            _write(connection, b"GET /livez HTTP/1.1\r\nx-")
        time.sleep(1.0)


def _dripping_headers(target: Target) -> None:
    with _connections(target, 50) as made:
        for letter in b"GET /livez HTTP/1.1\r\nhost: local":
            for connection in made:
                _write(connection, bytes([letter]))
            time.sleep(0.05)


def _noise(target: Target) -> None:
    for _ in range(100):
        with suppress(OSError), _connection(target) as connection:
            _write(connection, b"\x16\x03\x01\x02\x00" + bytes(500))


def _login_pages(target: Target) -> None:
    with _connections(target, 100) as made:
        for connection in made:
            _write(connection, _LOGIN)
        _read_for(made, 10.0)


def _sign_ins(target: Target) -> None:
    """Sign-in forms with wrong passwords, of many addresses and names: each password is hashed."""
    with ExitStack() as stack, suppress(OSError):
        made = []
        for number in range(200):
            connection = _connection(target, f"127.0.{number // 200 + 1}.{number % 200 + 2}")
            made.append(stack.enter_context(connection))
            _write(made[-1], _sign_in(number))
        _read_for(made, 4.0)


def _sign_in(number: int) -> bytes:
    token = "a" * 32
    form = f"login=stranger{number}&password=wrong&csrfmiddlewaretoken={token}"
    return (
        "POST /accounts/login/ HTTP/1.1\r\nhost: localhost\r\n"
        f"cookie: csrftoken={token}\r\ncontent-type: application/x-www-form-urlencoded\r\n"
        f"content-length: {len(form)}\r\n\r\n{form}"
    ).encode()


def _pipelined(target: Target) -> None:
    request = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with _connections(target, 1) as made:
        for connection in made:
            _write(connection, request * 5_000)
            time.sleep(1.0)


def _unread_streams(target: Target) -> None:
    request = _request(target, CHAT, stream=True, max_tokens=500)
    with _connections(target, 20) as made:
        for connection in made:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            _write(connection, request)
        time.sleep(3.0)


def _leaves(*requests: Callable[[Target, int], bytes]) -> Act:
    """Sends requests, each on a connection of its own, and leaves after 0.3 s."""

    def act(target: Target) -> None:
        with _connections(target, len(requests)) as made:
            for number, connection in enumerate(made):
                _write(connection, requests[number % len(requests)](target, number))
            time.sleep(0.3)
        time.sleep(1.0)

    return act


def _endless_schema(target: Target, number: int) -> bytes:
    value: Any = number
    for _ in range(60):
        value = [value]
    item = {"items": {"$ref": "#/$defs/n"}}
    schema = {"$defs": {"n": {"anyOf": [item, item]}}, "const": value, **item}
    return _request(target, CHAT, guided_json=schema)


def _bad_pattern(target: Target, number: int) -> bytes:
    pattern = f"((a{{1,1000}}){{1,1000}}){{1,{500 + number}}}"
    return _request(target, CHAT, guided_regex=pattern)


def _long_answer(target: Target, number: int) -> bytes:
    content = [{"role": "user", "content": f"Count from {number}."}]
    return _request(target, CHAT, messages=content, max_tokens=1900, stream=True, ignore_eos=True)


def _unknown_key(target: Target, number: int) -> bytes:
    return _head(Target(target.base_url, f"vny_live_{number}"), CHAT, 1000) + b"{"


def _bad_patterns(target: Target) -> None:
    with _connections(target, 30) as made:
        for number, connection in enumerate(made):
            _write(connection, _bad_pattern(target, number))
        _read_for(made, 5.0)


def _many_prompts(target: Target) -> None:
    """Fill the engine with a single request."""
    prompts = [f"{number} " + "word " * 150 for number in range(285)]
    request = _request(
        target, COMPLETIONS, model=MODEL, prompt=prompts, max_tokens=20, ignore_eos=True
    )
    with _connections(target, 1) as made:
        for connection in made:
            _write(connection, request)
        _read_for(made, 5.0)


CLIENTS: Final[dict[str, Act]] = {
    "headers without an end": _endless(
        lambda _: b"GET /livez HTTP/1.1\r\nhost: a\r\n",
        b"".join(b"a%d:b\r\n" % number for number in range(100_000)),
        4,
    ),
    "a body without an end to the API": _body_without_end(CHAT),
    "a body without an end to the sign-in": _body_without_end("/accounts/login/"),
    "chunks of a byte without an end": _endless(_chunked_head, b"1\r\na\r\n" * 10_000, 10),
    "unfinished bodies": _unfinished_bodies,
    "idle connections": _idle_connections,
    "headers byte by byte": _dripping_headers,
    "another protocol": _noise,
    "pages at once": _login_pages,
    "sign-ins at once": _sign_ins,
    "pipelined requests": _pipelined,
    "streams that are not read": _unread_streams,
    "schemas of clients that leave": _leaves(*[_endless_schema] * 7),
    "patterns of clients that leave": _leaves(*[_bad_pattern] * 7),
    "answers of clients that leave": _leaves(*[_long_answer] * 20),
    "clients that leave before they are refused": _leaves(*[_unknown_key] * 50),
    "bad patterns at once": _bad_patterns,
    "one request of many prompts": _many_prompts,
}
