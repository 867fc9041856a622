"""Asks a running server over HTTP whether it is ready, and which models it has.

For the supervisor, which has neither Django nor an HTTP library. Loopback only, so proxies
of the environment are ignored.
"""

from __future__ import annotations

import json
from enum import Enum
from http import HTTPStatus
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

_TIMEOUT_S = 2.0


class Readiness(Enum):
    """How far a start has come, in words for whoever waits."""

    SILENT = "the web process to answer"
    LOADING = "a model's first token"
    READY = "nothing"


def readiness(base_url: str) -> Readiness:
    """What `/readyz` says. Blocks for at most `_TIMEOUT_S`."""
    match _get(f"{base_url}/readyz"):
        case (HTTPStatus.OK, _):
            return Readiness.READY
        case None:
            return Readiness.SILENT
        case _:
            return Readiness.LOADING


def first_model(base_url: str, api_key: str) -> str | None:
    """The name of a model that this key may use, or None if the server names none."""
    match _get(f"{base_url}/v1/models", {"Authorization": f"Bearer {api_key}"}):
        case (HTTPStatus.OK, body):
            models = json.loads(body)["data"]
            return str(models[0]["id"]) if models else None
        case _:
            return None


def _get(url: str, headers: dict[str, str] | None = None) -> tuple[int, bytes] | None:
    """Status and body, or None when no answer came."""
    opener = build_opener(ProxyHandler({}))
    try:
        with opener.open(Request(url, headers=headers or {}), timeout=_TIMEOUT_S) as answer:
            return answer.status, answer.read()
    except HTTPError as error:
        with error:
            return error.code, error.read()
    except (OSError, HTTPException):
        return None
