"""`vinery ready`: is the server of this machine ready?

Standard library only, for the supervisor.
"""

import argparse
import json
from enum import Enum
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

from vinery_platform.cli.shape import Failure
from vinery_platform.config.env import SettingError
from vinery_platform.config.home import Home
from vinery_platform.config.notes import RunningServer
from vinery_platform.processes.listening import Address

_TIMEOUT_S = 2.0


class Readiness(Enum):
    """The progress of a start. The values name what the start waits for."""

    SILENT = "the web process to answer"
    LOADING = "a model's first token"
    READY = "nothing"


def local_url() -> str:
    """The root URL of the server of this home, for clients of this machine: of the running server,
    else by the settings. Raises `SettingError` for an address that cannot be used."""
    try:
        server = RunningServer.read(Home.from_env())
    except SettingError:  # the home of another user, whose server may answer all the same
        server = None
    return Address.from_env().base_url if server is None else server.base_url


def readiness(base_url: str) -> Readiness:
    """The readiness by `/readyz`. Blocks for at most `_TIMEOUT_S`."""
    answer = _get(f"{base_url}/readyz")
    if answer is None:
        return Readiness.SILENT
    return Readiness.READY if answer[0] == HTTPStatus.OK else Readiness.LOADING


def health_report(base_url: str) -> dict[str, Any]:
    """The report of `/readyz`; empty if the server does not answer. Blocks as `readiness` does."""
    answer = _get(f"{base_url}/readyz")
    report: dict[str, Any] = {} if answer is None else json.loads(answer[1])
    return report


def _get(url: str) -> tuple[int, bytes] | None:
    """Status and body; None without a whole response. No proxy and no redirect leads to another
    server than the named one."""
    parts = urlsplit(url)
    connection = HTTPConnection(str(parts.hostname), parts.port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", parts.path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()


def run_ready(_: argparse.Namespace) -> str:
    """Ask the server of this home whether a model has generated a token lately. If `vinery up` does
    not run with this home, the server on VINERY_HOST, VINERY_PORT is asked. The exit status is 0 if
    a model has, and 1 if not."""
    base_url = local_url()
    state = readiness(base_url)
    if state is not Readiness.READY:
        raise Failure(f"{base_url} is not ready: it waits for {state.value}.")
    return f"{base_url} is ready."
