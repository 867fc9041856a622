"""Sends a case, and judges the answer: the status, and whether a refusal names the field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any, Final
from urllib.parse import urlsplit

from tests.hostile.case import IN_ANTHROPICS_FORM, WITHOUT_FIELD, Case

_TIMEOUT_S: Final = 120.0
_MOST_READ: Final = 1 << 26
# Statuses of a busy server, which a client waits out.
_BUSY: Final = frozenset((429, 503))


@dataclass(frozen=True)
class Outcome:
    """An answer, or an end before the answer (status 0)."""

    status: int
    content: bytes = b""
    headers: Mapping[str, str] | None = None

    def error(self, path: str) -> Mapping[str, Any] | None:
        """The error in the form of the API at this path; None: no error of that form."""
        try:
            body = json.loads(self.content)
            found = body["error"]
        except (ValueError, TypeError, KeyError, RecursionError):
            return None
        members = {"error", "type", "request_id"} if path in IN_ANTHROPICS_FORM else {"error"}
        return found if isinstance(found, dict) and body.keys() == members else None


@dataclass(frozen=True)
class Target:
    """A platform, and the key of the hostile client."""

    base_url: str
    api_key: str

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.base_url)
        return parts.hostname or "127.0.0.1", parts.port or 80


def send(target: Target, case: Case) -> Outcome:
    """Send a case, and read the whole answer."""
    body = case.body(case.size)
    connection = HTTPConnection(*target.address, timeout=_TIMEOUT_S)
    # Odd paths are the point. The library checks them, and writes what remains.
    connection._validate_path = lambda url: None  # type: ignore[attr-defined]
    try:
        authorization = f"Bearer {target.api_key}"
        headers = {"content-type": "application/json", "authorization": authorization}
        return _sent(connection, case, body, {**headers, **case.headers})
    finally:
        connection.close()


def _sent(connection: HTTPConnection, case: Case, body: bytes, headers: dict[str, str]) -> Outcome:
    try:
        # A refusal may be there before the body was sent.
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.request(case.method, case.path, body or None, headers)
        response = connection.getresponse()
        content = _read(response)
    except (OSError, HTTPException):
        return Outcome(0)
    named = {name.lower(): value for name, value in response.getheaders()}
    return Outcome(response.status, content, named)


def _read(response: HTTPResponse) -> bytes:
    try:
        return response.read(_MOST_READ)
    except ConnectionResetError:
        return b""  # the server closed an unread request


def fault_of(case: Case, outcome: Outcome) -> str | None:
    """The fault of an answer, or None."""
    status, error = outcome.status, outcome.error(case.path)
    if status == 0:
        return "no answer"
    if status in _BUSY:
        is_dated = "retry-after" in (outcome.headers or {})
        return None if is_dated else f"{status} without Retry-After"
    if status not in case.statuses:
        return f"status {status}: {outcome.content[:200]!r}"
    if status == 200 or (case.param is None and case.path not in IN_ANTHROPICS_FORM):
        return None
    if error is None:
        return f"status {status} without an error object: {outcome.content[:200]!r}"
    if case.param is None:
        return None
    return None if names(case.param, error) else f"{case.param} is not named: {error}"


def names(param: str, error: Mapping[str, Any]) -> bool:
    """Whether an error is about this field, or about the body as a whole."""
    message = str(error.get("message"))
    for code, words in WITHOUT_FIELD.items():
        if error.get("code") == code or ("code" not in error and words in message):
            return True
    top = str(error.get("param") or "").partition(".")[0].partition("[")[0]
    return top == param or f"`{param}" in message
