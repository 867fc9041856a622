"""The management API, people's pages and the documents: filters, forms and methods. Odd ids:
tests/accounts/test_hostile_visitors.py.

Reads with the key of the bootstrap, or without any: no session. Nothing here changes a row, but
for keys and limits that are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import urlencode

from tests.hostile.case import REFUSALS, Body, Case, Key, constant, num_of
from tests.hostile.corpus import values

_SIZE: Final = 1 << 16
_JSON: Final = {"content-type": "application/json"}
_NO_BODY: Final = constant(b"")
# A page may send the visitor to the sign-in.
_PAGE: Final = frozenset((200, 301, 302, 401, 403, 405, *REFUSALS))
_TABLES: Final = (
    "organizations", "projects", "users", "memberships", "keys", "limits", "model-weights",
    "quotas", "alerts", "webhooks", "refusals", "captures", "audit",
)  # fmt: skip
_PAGES: Final = (
    "/accounts/login/", "/accounts/password/reset/", "/accounts/logout/", "/console/",
    "/console/keys/", "/console/keys/new/", "/console/limits/new/", "/console/usage/", "/admin/",
    "/admin/login/",
)  # fmt: skip
_DOCUMENTS: Final = ("/livez", "/readyz", "/metrics", "/openapi.json", "/version", "/api/schema/")
_QUERIES: Final[Mapping[str, Mapping[str, str]]] = {
    "a long search": {"search": "a" * 6_000},
    "a search of wildcards": {"search": "%_" * 2_000},
    "a page of no number": {"page": "9" * 3_000},
    "a page before the first": {"page": "-1"},
    "a page size": {"page_size": "1" + "0" * 30},
    "an unknown filter": {"x" * 3_000: "1"},
    "a filter of no number": {"project": "1 OR 1=1"},
    "an order": {"ordering": "-password,owner__password"},
    "a zero byte": {"search": "a\0b"},
    "half a character": {"search": "\udcff"},
}


def page_cases() -> Iterator[Case]:
    yield from _of_tables()
    yield from _of_pages()
    yield from _of_documents()


def _of_tables() -> Iterator[Case]:
    for at, table in enumerate(_TABLES):
        path = f"/api/{table}/"
        for number, (name, query) in enumerate(_QUERIES.items()):
            if (at + number) % 5 == 0:
                asked = path + "?" + urlencode(query, errors="surrogateescape")
                yield _api(f"{name}", "GET", asked)
        for name, (kind, large) in values.LARGE.items():
            if (at + len(name)) % 4 == 0:
                yield _api(name, "POST", path, _object(kind, large), _SIZE)
        for number, text in enumerate(values.UNICODE):
            if (at + number) % 5 == 0:
                field = f'{{"name": {text}}}'.encode("utf-8", "surrogateescape")
                yield _api(f"name {number}", "POST", path, constant(field))
        yield _api("no key", "GET", path, key=Key.NONE)
        yield _api("wrong key", "POST", path, constant({}), key=Key.WRONG)
        yield _api("not JSON", "POST", path, constant(b"[" * 50_000))
        yield _api("another method", "PUT", path, constant({}))


def _of_pages() -> Iterator[Case]:
    for path in _PAGES:
        yield _page(path, "anonymous", "GET")
        yield _page(path, "a form without a token", "POST", _form(login="a", password="b"))
        yield _page(path, "a long field", "POST", _form(login="a" * 50_000, password="b"))
        yield _page(path, "many fields", "POST", _many_fields(3_000))
        yield _page(
            path, "a multipart form", "POST", _multipart(), "multipart/form-data; boundary=b"
        )
        yield _page(path, "a form of no boundary", "POST", b"--b", "multipart/form-data")
        yield _page(path, "a form that is JSON", "POST", b"[" * 50_000, "application/json")
        yield _page(path + "?next=" + "%2f" * 2_000, "a long next", "GET")
        yield _page(path, "another method", "TRACE")


def _of_documents() -> Iterator[Case]:
    for path in _DOCUMENTS:
        for method in ("GET", "HEAD", "POST", "DELETE", "OPTIONS"):
            yield _page(path, "a document", method, b"a" * 1_000 if method == "POST" else b"")


def _api(
    name: str, method: str, path: str, body: Body = _NO_BODY, size: int = 0, *, key: Key = Key.RIGHT
) -> Case:
    title = f"{method} {path[:40]}: {name}"
    statuses = _PAGE | {201} if name.startswith("name ") else _PAGE
    return Case(title, "api", path, body, None, size, method, key, _JSON, statuses)


def _page(
    path: str,
    name: str,
    method: str,
    content: bytes = b"",
    media: str = "application/x-www-form-urlencoded",
) -> Case:
    title = f"{method} {path[:40]}: {name}"
    headers = {"content-type": media}
    return Case(
        title, "page", path, constant(content), None, 0, method, Key.NONE, headers, {*_PAGE, 204}
    )


def _object(kind: str, large: values.Text) -> Body:
    """A body with a value as the name, and as other fields."""

    def body(size: int) -> bytes:
        value = large(size // 2)
        return f'{{"name": {value}, "{kind}": {value}, "project": 1}}'.encode()

    return body


def _form(**fields: str) -> bytes:
    return urlencode(fields).encode()


def _many_fields(count: int) -> bytes:
    return "&".join(f"f{at}=1" for at in range(count)).encode()


def _multipart() -> bytes:
    part = b'--b\r\ncontent-disposition: form-data; name="a"; filename="b"\r\n\r\nc\r\n'
    return part * num_of(_SIZE, len(part)) + b"--b--\r\n"
