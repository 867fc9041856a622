"""Bodies that are hardly JSON, to every endpoint with a body, and odd headers and URLs."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from typing import Final

from tests.hostile.case import (
    ANSWERED,
    BODIES,
    CHAT,
    MESSAGES,
    Body,
    Case,
    constant,
    filled,
    num_of,
)
from tests.hostile.corpus import values
from tests.hostile.corpus.values import fixed

_SIZE: Final = 1 << 20
_TINY: Final = 200
_BOTH_FORMS: Final = (CHAT, MESSAGES)
_JSON: Final = {"content-type": "application/json"}


def text_cases() -> Iterator[Case]:
    """Odd bodies to two endpoints, one for each form of errors: all endpoints read bodies by the
    same code."""
    for name, (size, body) in _BODIES.items():
        for path in _BOTH_FORMS:
            yield Case(f"{path}: {name}", "text", path, body, size=size)
    for path, base in BODIES.items():
        odd = (*values.UNICODE, *values.NUMBERS) if path in _BOTH_FORMS else ()
        for number, text in enumerate(odd):
            body = filled({**base, "x": "@hole@"}, fixed(text))
            name = f"{path}: unknown field with value {number}"
            yield Case(name, "text", path, body)
    yield from _headers()
    yield from _urls()


def _repeat(text: bytes, end: bytes = b"", begin: bytes = b"") -> tuple[int, Body]:
    return _SIZE, lambda size: begin + text * num_of(size, len(text)) + end


def _exactly(body: bytes) -> tuple[int, Body]:
    return _TINY, lambda size: body


def _members(size: int) -> bytes:
    return json.dumps({f"{at:x}": at for at in range(num_of(size, 14))}).encode()


_CHAT_BODY: Final = json.dumps(BODIES[CHAT])
_BODIES: Final[Mapping[str, tuple[int, Body]]] = {
    "nothing": _exactly(b""),
    "blanks": _repeat(b" "),
    "a text": _exactly(b'"text"'),
    "half of an object": _exactly(_CHAT_BODY[:-2].encode()),
    "two objects": _exactly(2 * _CHAT_BODY.encode()),
    "an object and zeros": _exactly(_CHAT_BODY.encode() + bytes(100)),
    "not UTF-8": _exactly(b'{"model": "\xff\xfe"}'),
    "UTF-16": _exactly(_CHAT_BODY.encode("utf-16")),
    "a byte order mark": _exactly(_CHAT_BODY.encode("utf-8-sig")),
    "compressed": _exactly(gzip.compress(_CHAT_BODY.encode())),
    "an integer of many digits": _repeat(b"9", b"}", b'{"x": '),
    "an exponent of many digits": _repeat(b"3", b"}", b'{"x": 1e-'),
    "deep arrays": _repeat(b"["),
    "deep objects": _repeat(b'{"a":', b"1"),
    "deep arrays that are closed": (
        _SIZE,
        lambda size: b'{"x": ' + b"[" * (size // 2) + b"]" * (size // 2) + b"}",
    ),
    "many members": (_SIZE, _members),
    "many members of one name": _repeat(b'"a":1,', b'"a":1}', b"{"),
    "many names that are escaped": _repeat(b'"\\u0061":1,', b'"b":1}', b"{"),
    "many nulls": _repeat(b"null,", b"null]}", b'{"x": ['),
    "many escapes": _repeat(b"\\u0041", b'"}', b'{"x": "'),
    "many halves of surrogates": _repeat(b"\\ud800", b'"}', b'{"x": "'),
    "a text without an end": _repeat(b"a", b"", b'{"x": "'),
}


def _headers() -> Iterator[Case]:
    """Odd headers of a request that is otherwise right."""
    for name, headers in {
        "a long client request id": {"x-client-request-id": "a" * 60_000},
        "a client request id that is not ASCII": {"x-client-request-id": "\xff\xfe"},
        "another content type": {"content-type": "application/x-www-form-urlencoded"},
        "an odd content type": {"content-type": "application/json; charset=\xff; q=" + "9" * 5_000},
        "a form": {"content-type": "multipart/form-data; boundary=" + "a" * 5_000},
        "an encoding": {"content-encoding": "gzip, gzip, gzip"},
        "a range": {"range": "bytes=" + "0-1," * 2_000},
        "an address": {"x-forwarded-for": "127.0.0.1, " * 500, "x-real-ip": "::1"},
        "another host": {"x-forwarded-host": "evil.example", "forwarded": "host=evil"},
        "many languages": {"accept-language": "a;q=0.1," * 1_000},
        "a cookie": {"cookie": "sessionid=" + "a" * 7_000},
        "an expectation": {"expect": "200-maybe"},
    }.items():
        sent = _JSON | headers
        statuses = (200, 400, 415, 417, 431)
        yield Case(
            f"header: {name}", "text", CHAT, constant(BODIES[CHAT]), headers=sent, statuses=statuses
        )


def _urls() -> Iterator[Case]:
    """Odd paths and queries, of the API and of pages."""
    for path in (
        "/v1/models/" + "a" * 7_000,
        "/v1/models/" + "%2e%2e%2f" * 300,
        "/v1/models/%00%ff%fe",
        "/v1/models/a%0d%0aset-cookie:%20a=b",
        "/v1/responses/" + "a" * 7_000,
        "/v1/responses/x/input_items?after=" + "a" * 7_000,
        "/v1/tokenizer_info?model=" + "a" * 7_000,
        "/v1/tokenizer_info?model=%ff&model=" + "&model=".join("b" * 900),
        "/v1/usage/me?" + "a=1&" * 1_500,
        "/v1/" + "a/" * 3_000,
        "//v1//models",
        "/v1/../../etc/passwd",
        "/static/..%2f..%2f..%2fetc%2fpasswd",
        "/openapi.json?" + "a=1&" * 1_500,
        "/metrics?" + "a=1&" * 1_500,
        "/readyz?" + "a=1&" * 1_500,
        "/version/%00",
    ):
        statuses = (200, 301, 302, *ANSWERED)
        yield Case(
            f"url: {path[:40]} ({len(path)})", "url", path, constant(b""), method="GET",
            statuses=statuses,
        )  # fmt: skip
