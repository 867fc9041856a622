"""Sends a body to a server once more, with edits: what `vinery replay` does, without a database.

Proxies of the environment are ignored and redirects are not followed: a prompt goes where it was
told to go, or nowhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from http.client import HTTPException
from typing import IO, Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener


class CannotReplay(Exception):
    """It was not sent, or not answered. The message says why."""


class Answered(NamedTuple):
    """What came back."""

    status: int
    request_id: str
    content: bytes


def edited(body: bytes, edits: Iterable[tuple[str, Any]]) -> bytes:
    """The body with these values at these dotted paths; without edits as it is.

    Raises `CannotReplay` for a path that leads nowhere.
    """
    edits = list(edits)
    if not edits:
        return body
    try:
        document = json.loads(body)
    except ValueError:
        raise CannotReplay("The body is not JSON, so nothing of it can be set.") from None
    for path, value in edits:
        _put(document, path, value)
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")


def _put(document: Any, path: str, value: Any) -> None:
    *way, last = path.split(".")
    place = document
    for name in way:
        # What is not there yet is made, so that `response_format.type` can be set.
        place = place.setdefault(name, {}) if isinstance(place, dict) else _item(place, name, path)
    if isinstance(place, dict):
        place[last] = value
    else:
        _item(place, last, path)
        place[int(last)] = value


def _item(place: Any, name: str, path: str) -> Any:
    if not isinstance(place, list):
        raise CannotReplay(f"{path} leads nowhere: what is before {name} has no parts.")
    if not name.isdecimal() or int(name) >= len(place):
        raise CannotReplay(f"{path} leads nowhere: {name} must be a number below {len(place)}.")
    return place[int(name)]


class _Stay(HTTPRedirectHandler):
    """Follows nobody."""

    def redirect_request(self, *_: Any) -> None:
        """Makes urllib raise HTTPError."""


def send(url: str, body: bytes, key: str, timeout_s: float) -> Answered:
    """Ask, and wait for the whole answer, of any status. Raises `CannotReplay` without one."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    try:
        request = Request(url, body, headers)
        with build_opener(ProxyHandler({}), _Stay).open(request, timeout=timeout_s) as answer:
            return _read(answer.status, answer)
    except HTTPError as error:
        with error:
            return _read(error.code, error)
    except (OSError, HTTPException, ValueError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise CannotReplay(f"{url} does not answer: {reason}") from None


def _read(status: int, answer: IO[bytes]) -> Answered:
    headers = getattr(answer, "headers", {})
    return Answered(status, headers.get("x-request-id", ""), answer.read())


def complaint(answered: Answered) -> str:
    """What the server says is wrong, and what to change."""
    try:
        error = json.loads(answered.content)["error"]
        code, message = error["code"], error["message"]
    except (ValueError, TypeError, LookupError):
        return f"It was answered with {answered.status}, and not by a server like this one."
    advice = {
        401: " Give a key with --key or VINERY_API_KEY.",
        404: " Name another model with --set model=NAME.",
        429: " A limit refused it: it counts for the key that you replay with.",
    }
    return f"The server refused it ({answered.status}, {code}): {message}" + advice.get(
        answered.status, ""
    )
